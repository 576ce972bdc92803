// Package copier copies the rows of a partition that serves reads and writes. It is the common part
// of moving a partition to another database and of splitting a partition in two. Triggers record
// which rows change after they were copied, and rounds copy these rows again. When few changes
// remain, the switch follows: gates block publishers and other writers, a last round copies the
// remaining changes, and the new partition or database takes over.
//
// It does not know which database holds a partition, or how the log is copied. ADR 83 has the reasons.
package copier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/fold/logread"
	"github.com/badged/badged/internal/partition"
)

// Step is a step of a move or a split.
type Step string

// The steps, in their order.
const (
	Preparing  Step = "prepare"
	CopyingLog Step = "copy the log"
	Copying    Step = "copy tables"
	CatchingUp Step = "catch up"
	Waiting    Step = "wait until all is folded"
	Switching  Step = "switch"
	CleaningUp Step = "clean up"
)

// Result counts what a move or a split copied, and how long it blocked publishers and folding.
type Result struct {
	// Rows counts the copied rows of all tables except the log. A row that is copied twice
	// counts twice. LogRows counts the rows of the log.
	Rows    int64 `json:"rows"`
	LogRows int64 `json:"log_rows"`
	// Paused is how long publishers to the partition were blocked. FoldingPaused is the time
	// from the closing of the gate until projectors owned all new partitions; so it is at least
	// as long as the time in which no event was folded. Both are zero if an earlier call made the
	// switch. FoldingPaused is also zero if a partition had no owner within 5 s.
	Paused        time.Duration `json:"paused_ns"`
	FoldingPaused time.Duration `json:"folding_paused_ns"`
	// Attempts is the number of attempts of the switch.
	Attempts int           `json:"attempts"`
	Took     time.Duration `json:"took_ns"`
}

// Operation is the part of a copy that differs between moves and splits.
type Operation interface {
	// CopyLog copies the next rows of the log in a transaction of the target. It copies no row
	// after cursor, and reports whether more rows up to the cursor remain.
	CopyLog(ctx context.Context, tx pgx.Tx, cursor logread.Cursor) (more bool, err error)
	// Staged is called before changed rows are written to the table t of the partition `to`.
	// `rows` is an item for a FROM clause: a query or table with the changed rows. If the form of
	// t is ByKey, the temporary table moved_keys has the keys of the changed rows.
	Staged(ctx context.Context, tx pgx.Tx, t partition.Table, to Part, rows string) error
	// Mark saves the progress of the copy in memory, and returns a function that sets the
	// progress back to what was saved. Call the function after a transaction was rolled back.
	Mark() (forget func())
	// Round copies, in one snapshot, the folded part of the log and the rows of at most limit
	// recorded changes. It returns the number of these changes.
	Round(ctx context.Context, limit int) (changes int, err error)
	// Attempt copies the remaining changes and makes the switch, in a transaction of the source
	// and while the gates are closed.
	Attempt(ctx context.Context, tx pgx.Tx, cursor logread.Cursor) error
}

// Part is a partition that gets rows.
type Part struct {
	Partition int
	// Child selects the rows that the partition gets, nil for all.
	Child *partition.Child
}

// query returns a SELECT statement for the rows of a table that p gets. `from` is the FROM list of
// the statement, in which the table has the alias t. `condition` is an SQL condition; if p is a
// child of a split, query adds the child's condition.
func (p *Part) query(t partition.Table, all partition.Columns, from, condition string) string {
	list, gets := all.List("t."), ""
	if p.Child != nil {
		list, gets = p.Child.Selects(t, all), " AND "+p.Child.Gets(t)
	}
	return `SELECT ` + list + ` FROM ` + from + ` WHERE ` + condition + gets
}

// Options are options of moves and splits.
type Options struct {
	// Progress, if not nil, is called with the current step and the number of rows copied so far;
	// in the step Waiting, with the number of rows that are not folded yet. Several calls may have
	// the same step.
	Progress func(step Step, rows int64)
	// MaxWait is the longest wait for a delaying transaction; see [pgsession.Blocking].
	MaxWait time.Duration
	// Patience is the approximate maximum time for which one attempt of the switch may block
	// publishers and the projector of the partition. Default 800ms.
	Patience time.Duration
	// Attempts is the number of attempts of the switch, default 10. If every attempt would exceed
	// Patience, the move or split fails with an error that wraps [ErrBusy].
	Attempts int
}

// SetDefaults sets options without a valid value to their defaults.
func (o *Options) SetDefaults() {
	if o.Progress == nil {
		o.Progress = func(Step, int64) {}
	}
	o.Attempts, o.Patience = cmp.Or(max(o.Attempts, 0), 10), cmp.Or(max(o.Patience, 0), 800*time.Millisecond)
}

// Copy copies a partition.
type Copy struct {
	// Session is the session with the source, Target the session with the target. Both are the same
	// session if source and target are the same database.
	*Session
	Target *Session
	// Parts are the partitions that get the rows.
	Parts []Part
	Operation
	Options
	// Closed is when the switch closed the gate. It is zero before the switch.
	Closed time.Time
	Result *Result

	// columns maps the names of the source's tables to their columns; see ReadColumns.
	columns map[string]partition.Columns
}

// ReadColumns reads the columns of all tables of the source. It fails if the columns of a table
// differ in the target.
func (c *Copy) ReadColumns(ctx context.Context) error {
	c.columns = map[string]partition.Columns{}
	for _, name := range append(partition.Watched(c.Partition), partition.Log(c.Partition)+"_offsets") {
		all, err := c.Columns(ctx, name)
		if err != nil {
			return err
		}
		if c.Target != c.Session {
			other, err := c.Target.Columns(ctx, name)
			if err != nil {
				return err
			}
			if all.List("") != other.List("") {
				return fmt.Errorf("the columns of %s differ between %s and %s: run `badged migrate up`", name, c.Condition, c.Target.Condition)
			}
		}
		c.columns[name] = all
	}
	return nil
}

// Everything makes the first copy. It copies the folded part of the log, and all tables except the
// tables that only rounds copy; see [partition.Table.InRounds].
func (c *Copy) Everything(ctx context.Context) error {
	for more := true; more; {
		if err := c.Target.InTransaction(ctx, func(tx pgx.Tx) error {
			cursor, err := logread.Load(ctx, c.Conn, c.Partition, "")
			if err != nil {
				return err
			}
			more, err = c.CopyLog(ctx, tx, cursor)
			return err
		}); err != nil {
			return err
		}
		c.Progress(CopyingLog, c.Result.LogRows)
	}
	for _, t := range partition.Tables() {
		if t.InRounds() {
			continue
		}
		if err := c.bulk(ctx, t); err != nil {
			return fmt.Errorf("copy %s: %w", t.Name(c.Partition), err)
		}
	}
	// The planner needs statistics before autovacuum collects them.
	for _, to := range c.Parts {
		if _, err := c.Target.Conn.Exec(ctx, `ANALYZE `+strings.Join(partition.OwnTables(to.Partition), ", ")); err != nil {
			return c.Target.wrap(err)
		}
	}
	return nil
}

// chunkRows is the number of rows of a table that one transaction copies.
const chunkRows = 5000

// bulk copies a table in the order of its key, at most chunkRows rows in each transaction. No
// snapshot of the whole table is needed, since triggers record the rows that change after they were
// copied.
func (c *Copy) bulk(ctx context.Context, t partition.Table) error {
	name := t.Name(c.Partition)
	all := c.columns[name]
	key := all.Of(t.Key)
	after := ""
	for {
		condition := t.Of(c.Partition) + after
		var bound []string
		err := c.Conn.QueryRow(ctx, fmt.Sprintf(`SELECT %s FROM %s AS t WHERE %s ORDER BY %s OFFSET %d LIMIT 1`,
			key.Texts("t."), name, condition, key.List("t."), chunkRows-1)).Scan(&bound)
		last := errors.Is(err, pgx.ErrNoRows)
		if err != nil && !last {
			return c.wrap(err)
		}
		if !last {
			condition += fmt.Sprintf(` AND (%s) <= (%s)`, key.List("t."), key.Literals(bound))
		}
		if err := c.Target.InTransaction(ctx, func(tx pgx.Tx) error {
			for _, to := range c.Parts {
				if err := c.chunk(ctx, tx, t, to, condition); err != nil {
					return err
				}
			}
			return nil
		}); err != nil || last {
			return err
		}
		after = fmt.Sprintf(` AND (%s) > (%s)`, key.List("t."), key.Literals(bound))
	}
}

// chunk copies to the partition `to` the rows of a table that meet the given SQL condition.
func (c *Copy) chunk(ctx context.Context, tx pgx.Tx, t partition.Table, to Part, condition string) error {
	name := t.Name(c.Partition)
	all := c.columns[name]
	if c.Target != c.Session && t.Refers == "" {
		n, err := c.Pipe(ctx, to.query(t, all, name+` AS t`, condition), t.Name(to.Partition), all.List(""))
		c.copied(Copying, n)
		return err
	}
	rows, err := c.stage(ctx, tx, name, to.query(t, all, name+` AS t`, condition))
	if err != nil {
		return err
	}
	tag, err := tx.Exec(ctx, c.insert(t, to, rows))
	c.copied(Copying, tag.RowsAffected())
	return err
}

// copied adds n to the number of copied rows, and passes the sum to Progress.
func (c *Copy) copied(step Step, n int64) {
	c.Result.Rows += n
	c.Progress(step, c.Result.Rows)
}

// insert returns a statement that inserts rows into the table of the partition `to`. It omits rows
// whose foreign key refers to a row that this partition does not have.
func (c *Copy) insert(t partition.Table, to Part, rows string) string {
	refers := "true"
	if t.Refers != "" {
		refers = strings.ReplaceAll(t.Refers, "pNN", fmt.Sprintf("p%02d", to.Partition))
	}
	return fmt.Sprintf(`INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %[2]s FROM %s AS r WHERE %s`,
		t.Name(to.Partition), c.columns[t.Name(c.Partition)].List(""), rows, refers)
}

// Pipe runs a query on the source and copies its rows into a table of the target, in the open
// transaction of the target. The target must be another database. Pipe returns the number of rows.
func (c *Copy) Pipe(ctx context.Context, query, table, columns string) (int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, w := io.Pipe()
	read := make(chan error, 1)
	go func() {
		_, err := c.Conn.PgConn().CopyTo(ctx, w, `COPY (`+query+`) TO STDOUT (FORMAT binary)`)
		_ = w.CloseWithError(err) // never fails
		read <- err
	}()
	tag, err := c.Target.Conn.PgConn().CopyFrom(ctx, r, `COPY `+table+` (`+columns+`) FROM STDIN (FORMAT binary)`)
	_ = r.CloseWithError(errTargetFailed) // never fails
	readErr := <-read
	switch {
	case readErr != nil && !errors.Is(readErr, errTargetFailed):
		return 0, fmt.Errorf("read from %s: %w", c.Condition, readErr)
	case err != nil:
		return 0, fmt.Errorf("write to %s: %w", c.Target.Condition, err)
	}
	return tag.RowsAffected(), nil
}

// errTargetFailed makes the reader of the source stop.
var errTargetFailed = errors.New("the target has failed")

// stage makes the rows of a query on the source readable for statements on the target. The query
// must select all columns of the table `name` of the source. stage returns an item for a FROM
// clause of the target: the query itself if source and target are the same database, else the
// temporary table moved_rows, to which it copies the rows.
func (c *Copy) stage(ctx context.Context, tx pgx.Tx, name, query string) (rows string, err error) {
	if c.Target == c.Session {
		return "(" + query + ")", nil
	}
	all := c.columns[name].List("")
	if _, err := tx.Exec(ctx, `DROP TABLE IF EXISTS moved_rows; CREATE TEMPORARY TABLE moved_rows ON COMMIT DROP AS SELECT `+all+` FROM `+name+` WITH NO DATA`); err != nil {
		return "", err
	}
	_, err = c.Pipe(ctx, query, "moved_rows", all)
	return "moved_rows", err
}

// StageAll copies all rows of a table of the source to the temporary table moved_rows of the
// target, which must be another database.
func (c *Copy) StageAll(ctx context.Context, tx pgx.Tx, name string) error {
	_, err := c.stage(ctx, tx, name, `SELECT `+c.columns[name].List("")+` FROM `+name)
	return err
}

// Changes copies the log up to a cursor, and the rows of at most limit recorded changes, in a
// transaction of the target. It returns the changes. So that the copied tables agree with each
// other, the source's transaction must see one snapshot, or the gates must be closed.
func (c *Copy) Changes(ctx context.Context, tx pgx.Tx, cursor logread.Cursor, limit int) (Changes, error) {
	done, err := c.notedChanges(ctx, limit)
	if err != nil {
		return done, err
	}
	for more := true; more; {
		if more, err = c.CopyLog(ctx, tx, cursor); err != nil {
			return done, err
		}
		if err := c.Overdue(); err != nil {
			return done, err
		}
	}
	for _, t := range partition.Tables() {
		if t.Form == partition.Frozen || !done.Kinds[t.Kind] {
			continue
		}
		if err := c.changed(ctx, tx, t, done.Last); err != nil {
			return done, fmt.Errorf("copy the changes of %s: %w", t.Name(c.Partition), err)
		}
		if err := c.Overdue(); err != nil {
			return done, err
		}
	}
	return done, nil
}

// changed copies the changed rows of a table again: the rows with a recorded change whose number is
// at most `last`.
func (c *Copy) changed(ctx context.Context, tx pgx.Tx, t partition.Table, last int64) error {
	name := t.Name(c.Partition)
	all := c.columns[name]
	key := all.Of(t.Key)
	from := name + ` AS t`
	if t.Form == partition.ByKey {
		keys, err := c.stageKeys(ctx, tx, c.Keys(t.Kind, last))
		if err != nil {
			return err
		}
		from = fmt.Sprintf(`%s AS k JOIN %s ON (%s) = (%s)`, keys, from, key.List("t."), key.FromKey("k.key"))
	}
	for _, to := range c.Parts {
		rows, err := c.stage(ctx, tx, name, to.query(t, all, from, t.Of(c.Partition)))
		if err != nil {
			return err
		}
		if err := c.Staged(ctx, tx, t, to, rows); err != nil {
			return err
		}
		stale, insert := t.Name(to.Partition)+` AS t WHERE `+t.Of(to.Partition), c.insert(t, to, rows)
		if t.Form == partition.ByKey {
			stale = fmt.Sprintf(`%s AS t USING moved_keys AS k WHERE (%s) = (%s) AND %s AND NOT EXISTS (SELECT FROM %s AS r WHERE (%s) = (%[2]s))`,
				t.Name(to.Partition), key.List("t."), key.FromKey("k.key"), t.Of(to.Partition), rows, key.List("r."))
			insert += t.Upsert(all, to.kept(t)...)
		}
		tag, err := tx.Exec(ctx, `DELETE FROM `+stale+`; `+insert)
		if err != nil {
			return err
		}
		c.copied(CatchingUp, tag.RowsAffected())
	}
	return nil
}

// stageKeys copies the keys of changed rows, the result of the query `keys`, into the temporary
// table moved_keys of the target. It returns an item with the same keys for the FROM clause of a
// query on the source.
func (c *Copy) stageKeys(ctx context.Context, tx pgx.Tx, keys string) (string, error) {
	if _, err := tx.Exec(ctx, `DROP TABLE IF EXISTS moved_keys; CREATE TEMPORARY TABLE moved_keys (key text[] COLLATE "C") ON COMMIT DROP`); err != nil {
		return "", err
	}
	if c.Target == c.Session {
		_, err := tx.Exec(ctx, `INSERT INTO moved_keys `+keys)
		return "moved_keys", err
	}
	_, err := c.Pipe(ctx, keys, "moved_keys", "key")
	return "(" + keys + ")", err
}

// kept returns the columns of a table that the method changed does not overwrite if the partition p
// already has the row. In a split, the only such column is the number of members of a room, which
// the split itself computes.
func (p *Part) kept(t partition.Table) []string {
	if p.Child != nil && t.Kind == "rooms" {
		return []string{"members"}
	}
	return nil
}

// CatchUp copies recorded changes in rounds, until another round would not shorten the switch.
func (c *Copy) CatchUp(ctx context.Context) error {
	return c.catchUp(func() (int, error) {
		forget := c.Mark()
		changes, err := c.Round(ctx, roundChanges)
		if err != nil {
			forget()
		}
		c.Progress(CatchingUp, c.Result.Rows)
		return changes, err
	})
}
