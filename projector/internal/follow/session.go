package follow

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/pgsession"
	"github.com/badged/badged/internal/sqlfile"
	"github.com/badged/badged/internal/wait"
	"github.com/badged/badged/projector/rebuild"
)

//go:embed follow.sql
var statementsText string

var statements = sqlfile.Parse(statementsText)

// Session follows a partition of a database. It holds the lock of a job, so that nothing
// else replaces tables.
type Session struct {
	// Where is the name of the shard, "" for a database by itself.
	Where     string
	Partition int
	Conn      *pgx.Conn
	// Tell is called from time to time with a transaction that is waited for.
	Tell func(by pgsession.Holder)
	// Most is for how long to wait for a transaction; see [pgsession.Blocking].
	Most time.Duration
	// Attempts is how often the switch may fail since it takes too long. Publishers wait
	// during each attempt. Default 10.
	Attempts int

	job *rebuild.Job
	// looked is when it last looked which transaction keeps the gate open, by the clock of
	// the database, and gate is the wait for that.
	looked time.Time
	gate   pgsession.Blocking
	// lastRound is how long the last round of catching up took.
	lastRound time.Duration
	// patience is how long publishers may wait in an attempt.
	patience time.Duration
	// due is when publishers have waited for long enough, during an attempt.
	due time.Time
}

// endingPatience is how long the session of a process that was killed may take to end. It
// first ends the statement that it runs.
const endingPatience = 5 * time.Second

// Open opens a session under an application_name. It waits for a moment for another of that
// name, whose process may have been killed just now. The others are the partitions besides,
// to which it writes while they are not held. The caller closes it.
func (s *Session) Open(ctx context.Context, pool *pgxpool.Pool, log *events.Log, application string, others ...int) error {
	job, err := begin(ctx, pool, log, application)
	if err != nil {
		return s.wrap(err)
	}
	s.job, s.Conn = job, job.Conn
	if err := pgsession.CheckOwner(ctx, s.Conn, "move partitions and split them"); err != nil {
		return s.wrap(err)
	}
	if _, err := s.Conn.Exec(ctx, statements.Get("plan for many rows")); err != nil {
		return s.wrap(err)
	}
	moved := fmt.Sprint(s.Partition)
	for _, p := range others {
		moved += fmt.Sprint(",", p)
	}
	if _, err := s.Conn.Exec(ctx, statements.Get("say what is moved"), moved); err != nil {
		return s.wrap(err)
	}
	return nil
}

// begin takes the lock of the job.
func begin(ctx context.Context, pool *pgxpool.Pool, log *events.Log, application string) (*rebuild.Job, error) {
	for deadline := time.Now().Add(endingPatience); ; {
		job, err := rebuild.NewJob(ctx, rebuild.Config{Pool: pool, Log: log}, application)
		running, is := errors.AsType[*rebuild.RunningError](err)
		if !is || running.Application != application || time.Now().After(deadline) {
			return job, err
		}
		if wait.For(ctx, 50*time.Millisecond) != nil {
			return nil, ctx.Err()
		}
	}
}

// Close ends the session, if it was opened.
func (s *Session) Close(ctx context.Context) {
	if s.job != nil {
		s.job.Close(ctx)
	}
}

// wrap adds the name of the shard to an error.
func (s *Session) wrap(err error) error {
	if s.Where == "" || err == nil {
		return err
	}
	return fmt.Errorf("on %s: %w", s.Where, err)
}

// In runs f in a transaction.
func (s *Session) In(ctx context.Context, f func(tx pgx.Tx) error) error {
	return s.wrap(pgx.BeginFunc(ctx, s.Conn, f))
}

// blocking returns the wait for transactions that use tables.
func (s *Session) blocking(tables []string) pgsession.Blocking {
	return pgsession.Blocking{Conn: s.Conn, Partition: s.Partition, Tables: tables, Most: s.Most, Tell: func(_ int, by pgsession.Holder) { s.Tell(by) }}
}

// RetryOnLock runs f in a transaction, as often as needed to get its locks, and reports which
// transaction has them.
func (s *Session) RetryOnLock(ctx context.Context, locked []string, f func(tx pgx.Tx) error) error {
	blocked := s.blocking(locked)
	for {
		err := s.In(ctx, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, pgsession.SetSwapPatienceSQL); err != nil {
				return err
			}
			return f(tx)
		})
		if !pgsession.IsLocked(err) {
			return err
		}
		if err := blocked.Wait(ctx); err != nil {
			return err
		}
	}
}

// Columns returns the columns of a table.
func (s *Session) Columns(ctx context.Context, table string) (Columns, error) {
	rows, _ := s.Conn.Query(ctx, statements.Get("columns of a table"), table)
	c, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c Column, err error) {
		err = row.Scan(&c.Name, &c.Type)
		return c, err
	})
	if err != nil {
		return nil, s.wrap(fmt.Errorf("read the columns of %s: %w", table, err))
	}
	return c, nil
}

// OwnTables returns the names of all tables of a partition alone, with the log.
func OwnTables(partition int) []string {
	names := []string{"badged." + events.Topic(partition)}
	for _, t := range Tables() {
		if !t.Shared {
			names = append(names, t.Name(partition))
		}
	}
	return names
}

// Watched returns the names of all tables with triggers.
func Watched(partition int) []string {
	names := OwnTables(partition)
	for _, t := range Tables() {
		if t.Shared {
			names = append(names, t.Name(partition))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Empty deletes all rows of a partition that the database does not hold, and what is noted
// of a move of it.
func Empty(ctx context.Context, tx pgx.Tx, partition int) error {
	if _, err := tx.Exec(ctx, `TRUNCATE `+strings.Join(OwnTables(partition), ", ")); err != nil {
		return err
	}
	for _, t := range Tables() {
		if t.Shared {
			if _, err := tx.Exec(ctx, `DELETE FROM `+t.Name(partition)+` WHERE partition_id = $1`, partition); err != nil {
				return err
			}
		}
	}
	return Forget(ctx, tx, partition)
}

// Forget deletes what is noted of a move of a partition.
func Forget(ctx context.Context, tx pgx.Tx, partition int) error {
	for _, sql := range []string{statements.Get("forget a move"), statements.Get("forget the changes"), statements.Get("forget the places")} {
		if _, err := tx.Exec(ctx, sql, partition); err != nil {
			return err
		}
	}
	return nil
}

// ForgetChanges deletes which rows have changed.
func ForgetChanges(ctx context.Context, tx pgx.Tx, partition int) error {
	_, err := tx.Exec(ctx, statements.Get("forget the changes"), partition)
	return err
}

// trigger returns a statement with PARTITION replaced: triggers have no parameters.
func trigger(sql string, partition int) string {
	return strings.ReplaceAll(sql, "PARTITION", fmt.Sprint(partition))
}

// Gate makes publishers to a partition wait while its gate is closed, and refuses those
// that find the partition gone.
func Gate(ctx context.Context, tx pgx.Tx, partition int) error {
	_, err := tx.Exec(ctx, trigger(statements.Of(partition, "gate the log"), partition))
	return err
}

// Ungate ends what Gate does.
func Ungate(ctx context.Context, tx pgx.Tx, partition int) error {
	_, err := tx.Exec(ctx, `DROP TRIGGER IF EXISTS gate ON badged.`+events.Topic(partition))
	return err
}

// Refuse makes the log of a partition that is not held refuse events.
func Refuse(ctx context.Context, tx pgx.Tx, partition int) error {
	_, err := tx.Exec(ctx, trigger(statements.Of(partition, "refuse appends"), partition))
	return err
}

// Admit ends what Refuse does.
func Admit(ctx context.Context, tx pgx.Tx, partition int) error {
	_, err := tx.Exec(ctx, `DROP TRIGGER IF EXISTS not_held ON badged.`+events.Topic(partition))
	return err
}

// Watch creates the triggers that note which rows change, and the gates. Each waits only
// for a moment, since others wait behind it. Then what the rounds copy is noted as changed.
func (s *Session) Watch(ctx context.Context) error {
	log := "badged." + events.Topic(s.Partition)
	if err := s.RetryOnLock(ctx, []string{log}, func(tx pgx.Tx) error {
		if err := Gate(ctx, tx, s.Partition); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, trigger(statements.Of(s.Partition, "watch the payloads"), s.Partition))
		return err
	}); err != nil {
		return err
	}
	var all []string
	for _, t := range Tables() {
		kind, key := t.Kind+t.Suffix, t.Key
		if t.Form == Whole {
			key = []string{}
			all = append(all, t.Kind)
		}
		if err := s.RetryOnLock(ctx, []string{t.Name(s.Partition)}, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, statements.Get("watch a table"), s.Partition, t.Name(s.Partition), kind, t.Shared, key)
			return err
		}); err != nil {
			return err
		}
	}
	return s.In(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, statements.Get("copy a table as a whole"), s.Partition, all); err != nil {
			return err
		}
		for _, t := range Tables() {
			if t.Form != ByKey || !t.InRounds() {
				continue
			}
			var key Columns
			for _, name := range t.Key {
				key = append(key, Column{Name: name})
			}
			if _, err := tx.Exec(ctx, fmt.Sprintf(`INSERT INTO badged.move_changes (partition_id, kind, key) SELECT DISTINCT %d, %s, %s FROM %s AS t WHERE %s`,
				s.Partition, Literal(t.Kind), key.Texts("t."), t.Name(s.Partition), t.Of(s.Partition))); err != nil {
				return err
			}
		}
		return nil
	})
}

// Unwatch drops the triggers of the partition alone, and forgets the move.
func (s *Session) Unwatch(ctx context.Context) error {
	for _, name := range OwnTables(s.Partition) {
		if err := s.RetryOnLock(ctx, []string{name}, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `DROP TRIGGER IF EXISTS moving ON `+name)
			return err
		}); err != nil {
			return err
		}
	}
	if err := s.RetryOnLock(ctx, []string{"badged." + events.Topic(s.Partition)}, func(tx pgx.Tx) error { return Ungate(ctx, tx, s.Partition) }); err != nil {
		return err
	}
	return s.In(ctx, func(tx pgx.Tx) error { return Forget(ctx, tx, s.Partition) })
}

// WatchedStill reports whether every change since Watch was noted, and none was of a table
// that nothing changes.
func (s *Session) WatchedStill(ctx context.Context) (bool, error) {
	var triggers int
	var replaced bool
	watched := Watched(s.Partition)
	err := s.Conn.QueryRow(ctx, statements.Get("count the triggers"), watched).Scan(&triggers)
	if err == nil {
		err = s.Conn.QueryRow(ctx, statements.Get("was a frozen table changed"), s.Partition).Scan(&replaced)
	}
	return !replaced && triggers == len(watched)+1, s.wrap(err) // the log has two
}

// Changes are noted changes: which, and of which tables.
type Changes struct {
	Numbers []int64
	Kinds   map[string]bool
	// Last is the greatest number that may be among them.
	Last int64
}

// NotedChanges returns at most that many changes, in the order of their numbers.
func (s *Session) NotedChanges(ctx context.Context, most int) (Changes, error) {
	found := Changes{Kinds: map[string]bool{}, Last: 1<<63 - 1}
	rows, _ := s.Conn.Query(ctx, statements.Get("changes"), s.Partition, most)
	var number int64
	var kind string
	if _, err := pgx.ForEachRow(rows, []any{&number, &kind}, func() error {
		found.Numbers = append(found.Numbers, number)
		found.Kinds[kind] = true
		return nil
	}); err != nil {
		return found, s.wrap(fmt.Errorf("read the changes: %w", err))
	}
	if len(found.Numbers) == most {
		found.Last = found.Numbers[most-1]
	}
	return found, nil
}

// Keys returns a query for the keys of noted changes of a table, up to a number.
func (s *Session) Keys(kind string, last int64) string {
	return fmt.Sprintf(`SELECT DISTINCT key FROM badged.move_changes WHERE partition_id = %d AND kind = %s AND number <= %d`, s.Partition, Literal(kind), last)
}

// Copied deletes exactly these noted changes: others with lower numbers may have been
// uncommitted.
func (s *Session) Copied(ctx context.Context, numbers []int64) error {
	_, err := s.Conn.Exec(ctx, statements.Get("changes are copied"), numbers)
	return s.wrap(err)
}

// Bound returns the end of the next chunk of the log: of a few megabytes, behind a
// position, and at most another.
func (s *Session) Bound(ctx context.Context, after, most events.Position, rows int) (events.Position, error) {
	bound := most
	err := s.Conn.QueryRow(ctx, statements.Of(s.Partition, "bound of a chunk of the log"), after.TransactionID, after.Offset,
		most.TransactionID, most.Offset, rows).Scan(&bound.TransactionID, &bound.Offset)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return bound, s.wrap(fmt.Errorf("read the log: %w", err))
	}
	return bound, nil
}
