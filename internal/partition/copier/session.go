package copier

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/partition"
	"github.com/badged/badged/internal/partition/rebuild"
	"github.com/badged/badged/internal/pg/pgsession"
	"github.com/badged/badged/internal/pg/query"
	"github.com/badged/badged/internal/pg/sqlfile"
)

//go:embed copier.sql
var statementsText string

var statements = sqlfile.Parse(statementsText)

// Session is the session of a move or split with one database. It owns the lock of a
// maintenance job, so that no other job can replace tables.
type Session struct {
	// Condition is the name of the database, "" for a single database.
	Condition string
	Partition int
	Conn      *pgx.Conn
	// Blocked is called repeatedly while a transaction of another session blocks this session.
	Blocked func(holder pgsession.Holder)
	// MaxWait is the longest wait for a blocking transaction; see [pgsession.Blocking].
	MaxWait time.Duration

	pool *pgxpool.Pool
	job  *rebuild.Job
	// The gate is the lock that blocks publishers. checked is when the session last looked for a
	// transaction that would delay closing the gate, by the database's clock. gate reports such a
	// transaction and limits the wait for it.
	checked time.Time
	gate    pgsession.Blocking
	// lastRound is the duration of the last round of catching up.
	lastRound time.Duration
	// due is the time until which the running attempt may block publishers. It is zero if no
	// attempt runs.
	due time.Time
}

// endingPatience limits the wait until Postgres ends the session of a killed process. Postgres
// first completes the current statement of that session.
const endingPatience = 5 * time.Second

// Open connects with this application_name and acquires the lock of the job. The caller must close
// the session, even after an error. If another session with the same application_name has the
// lock, that session may belong to a process that was just killed, so Open retries for
// endingPatience. `others` are further partitions to which the session writes before the database
// holds them.
func (s *Session) Open(ctx context.Context, pool *pgxpool.Pool, log *events.Log, application string, others ...int) error {
	job, err := begin(ctx, pool, log, application)
	if err != nil {
		return s.wrap(err)
	}
	s.pool, s.job, s.Conn = pool, job, job.Conn
	err = pgsession.CheckOwner(ctx, s.Conn, "move partitions and split them")
	if err == nil {
		_, err = s.Conn.Exec(ctx, statements.Get("plan for many rows"))
	}
	moved := fmt.Sprint(s.Partition)
	for _, p := range others {
		moved += fmt.Sprint(",", p)
	}
	if err == nil {
		_, err = s.Conn.Exec(ctx, statements.Get("say what is moved"), moved)
	}
	return s.wrap(err)
}

// begin acquires the lock of the job. It retries while a session with the same application_name has
// the lock, at most for endingPatience.
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

// Close ends the session if it is open.
func (s *Session) Close(ctx context.Context) {
	if s.job != nil {
		s.job.Close(ctx)
	}
}

// wrap adds the name of the database to an error.
func (s *Session) wrap(err error) error {
	if s.Condition == "" || err == nil {
		return err
	}
	return fmt.Errorf("on %s: %w", s.Condition, err)
}

// InTransaction runs f in a transaction.
func (s *Session) InTransaction(ctx context.Context, f func(tx pgx.Tx) error) error {
	return s.wrap(pgx.BeginFunc(ctx, s.Conn, f))
}

// blocking returns the settings with which a transaction is retried while other transactions have
// locked the tables.
func (s *Session) blocking(tables []string) pgsession.Blocking {
	return pgsession.Blocking{Conn: s.Conn, Partition: s.Partition, Tables: tables, MaxWait: s.MaxWait, Report: func(_ int, holder pgsession.Holder) { s.Blocked(holder) }}
}

// RetryOnLock runs f in a transaction, and repeats the transaction until f acquires its locks.
// Meanwhile it calls Blocked with the transaction that has locks on the tables in `locked`.
func (s *Session) RetryOnLock(ctx context.Context, locked []string, f func(tx pgx.Tx) error) error {
	blocked := s.blocking(locked)
	return s.wrap(blocked.Retry(ctx, s.Conn, f))
}

// retryExec is RetryOnLock for a transaction of one statement, which locks one table.
func (s *Session) retryExec(ctx context.Context, locked, sql string, args ...any) error {
	return s.RetryOnLock(ctx, []string{locked}, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, sql, args...)
		return err
	})
}

// Columns returns the columns of a table.
func (s *Session) Columns(ctx context.Context, table string) (partition.Columns, error) {
	all, err := query.All(ctx, s.Conn, "read the columns of "+table, pgx.RowToStructByPos[partition.Column], statements.Get("columns of a table"), table)
	return all, s.wrap(err)
}

// CreateTables creates the tables of a partition, unless they exist.
func (s *Session) CreateTables(ctx context.Context, p int) error {
	return s.RetryOnLock(ctx, []string{"badged.webhooks", "badged.users", "badged.conversations"}, func(tx pgx.Tx) error {
		return query.Exec(ctx, tx, fmt.Sprintf("create the tables of partition %d", p), `SELECT badged.create_partition($1)`, p)
	})
}

// OpenForCopy empties the tables of a partition that the database does not hold. Then it permits
// the session that copies the partition to append to the log of the partition. The gate refuses
// appends by all other sessions.
func OpenForCopy(ctx context.Context, tx pgx.Tx, p int) error {
	if err := empty(ctx, tx, p); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, gateSQL(p)+`; DROP TRIGGER IF EXISTS not_held ON `+partition.Log(p))
	return err
}

// Clear deletes all rows of a partition that the database does not hold, and makes the log of
// the partition refuse events.
func Clear(ctx context.Context, tx pgx.Tx, p int) error {
	if _, err := tx.Exec(ctx, trigger(statements.Of(p, "refuse appends"), p)+`; `+ungateSQL(p)); err != nil {
		return err
	}
	return empty(ctx, tx, p)
}

// empty deletes all rows of a partition, the records of its move, and the triggers of the move.
func empty(ctx context.Context, tx pgx.Tx, p int) error {
	var batch pgx.Batch
	own := partition.OwnTables(p)
	for _, name := range own {
		batch.Queue(`DROP TRIGGER IF EXISTS moving ON ` + name)
	}
	batch.Queue(`TRUNCATE ` + strings.Join(own, ", "))
	for _, t := range partition.Tables() {
		if t.Shared {
			batch.Queue(`DELETE FROM `+t.Name(p)+` WHERE partition_id = $1`, p)
		}
	}
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return err
	}
	return Forget(ctx, tx, p)
}

// Forget deletes the record of a move or split of a partition, the recorded changes of rows, and
// the recorded places in the target's log that correspond to places in the source's log.
func Forget(ctx context.Context, tx pgx.Tx, partition int) error {
	var batch pgx.Batch
	for _, sql := range []string{statements.Get("forget a move"), statements.Get("forget the changes"), statements.Get("forget the places")} {
		batch.Queue(sql, partition)
	}
	return tx.SendBatch(ctx, &batch).Close()
}

// ForgetChanges deletes the recorded changes of a partition's rows.
func ForgetChanges(ctx context.Context, tx pgx.Tx, partition int) error {
	_, err := tx.Exec(ctx, statements.Get("forget the changes"), partition)
	return err
}

// trigger replaces PARTITION in a CREATE TRIGGER statement, which cannot have parameters.
func trigger(sql string, partition int) string {
	return strings.ReplaceAll(sql, "PARTITION", fmt.Sprint(partition))
}

// gateSQL returns a statement that creates the gate of a partition: a trigger on the log. While
// the gate is closed, the trigger blocks appends. When the switch ends, it permits the appends, or
// refuses them if the database no longer holds the partition.
func gateSQL(p int) string { return trigger(statements.Of(p, "gate the log"), p) }

func ungateSQL(p int) string { return `DROP TRIGGER IF EXISTS gate ON ` + partition.Log(p) }

// Watch creates the gate and the triggers that record which rows change. Each statement waits only
// briefly for its lock and is then retried, since other transactions queue behind a waiting
// statement. At the end, Watch records a change of every row in the tables that the first copy
// skips, so that the first round copies these tables; see [partition.Table.InRounds].
func (s *Session) Watch(ctx context.Context) error {
	if err := s.retryExec(ctx, partition.Log(s.Partition), gateSQL(s.Partition)+`; `+trigger(statements.Of(s.Partition, "watch the payloads"), s.Partition)); err != nil {
		return err
	}
	var all []string
	for _, t := range partition.Tables() {
		kind, key := t.Kind+t.Suffix, t.Key
		if t.Form == partition.Whole {
			key = []string{}
			all = append(all, t.Kind)
		}
		if err := s.retryExec(ctx, t.Name(s.Partition), statements.Get("watch a table"), s.Partition, t.Name(s.Partition), kind, t.Shared, key); err != nil {
			return err
		}
	}
	return s.InTransaction(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, statements.Get("copy a table as a whole"), s.Partition, all); err != nil {
			return err
		}
		for _, t := range partition.Tables() {
			if t.Form != partition.ByKey || !t.InRounds() {
				continue
			}
			var key partition.Columns
			for _, name := range t.Key {
				key = append(key, partition.Column{Name: name})
			}
			if _, err := tx.Exec(ctx, fmt.Sprintf(`INSERT INTO badged.move_changes (partition_id, kind, key) SELECT DISTINCT %d, %s, %s FROM %s AS t WHERE %s`,
				s.Partition, partition.Literal(t.Kind), key.Texts("t."), t.Name(s.Partition), t.Of(s.Partition))); err != nil {
				return err
			}
		}
		return nil
	})
}

// Unwatch drops the gate and the triggers on the partition's own tables, and deletes the
// records of the move.
func (s *Session) Unwatch(ctx context.Context) error {
	for _, name := range partition.OwnTables(s.Partition) {
		if err := s.retryExec(ctx, name, `DROP TRIGGER IF EXISTS moving ON `+name); err != nil {
			return err
		}
	}
	if err := s.retryExec(ctx, partition.Log(s.Partition), ungateSQL(s.Partition)); err != nil {
		return err
	}
	return s.InTransaction(ctx, func(tx pgx.Tx) error { return Forget(ctx, tx, s.Partition) })
}

// WatchedStill reports whether an interrupted copy can be resumed: every change was recorded, since
// all triggers of Watch still exist, and no table of the form [partition.Frozen] and no payload in
// the log has changed.
func (s *Session) WatchedStill(ctx context.Context) (bool, error) {
	var triggers int
	var replaced bool
	watched := partition.Watched(s.Partition)
	err := s.Conn.QueryRow(ctx, statements.Get("count the triggers"), watched).Scan(&triggers)
	if err == nil {
		err = s.Conn.QueryRow(ctx, statements.Get("was a frozen table changed"), s.Partition).Scan(&replaced)
	}
	return !replaced && triggers == len(watched)+1, s.wrap(err) // the log has two triggers, every other table one
}

// Changes are recorded changes of rows, and the kinds of the changed tables.
type Changes struct {
	Numbers []int64
	Kinds   map[string]bool
	// Last is the number up to which changes are included: the greatest of Numbers, or the
	// greatest int64 if no further changes were recorded.
	Last int64
}

// notedChanges returns the recorded changes with the lowest numbers, at most limit of them.
func (s *Session) notedChanges(ctx context.Context, limit int) (Changes, error) {
	found := Changes{Kinds: map[string]bool{}, Last: 1<<63 - 1}
	var number int64
	var kind string
	err := query.Each(ctx, s.Conn, "read the changes", statements.Get("changes"), []any{s.Partition, limit}, []any{&number, &kind}, func() error {
		found.Numbers = append(found.Numbers, number)
		found.Kinds[kind] = true
		return nil
	})
	if len(found.Numbers) == limit {
		found.Last = found.Numbers[limit-1]
	}
	return found, s.wrap(err)
}

// Keys returns a query for the keys of the changed rows of a table, according to the recorded
// changes whose number is at most `last`.
func (s *Session) Keys(kind string, last int64) string {
	return fmt.Sprintf(`SELECT DISTINCT key FROM badged.move_changes WHERE partition_id = %d AND kind = %s AND number <= %d`, s.Partition, partition.Literal(kind), last)
}

// Copied deletes recorded changes after their rows were copied. It deletes exactly the changes with
// these numbers, and not all changes up to the greatest number, since a change with a lower number
// may have been committed after the changes were read.
func (s *Session) Copied(ctx context.Context, numbers []int64) error {
	_, err := s.Conn.Exec(ctx, statements.Get("changes are copied"), numbers)
	return s.wrap(err)
}

// Bound returns the position up to which one transaction should copy the log, beginning after the
// position `after`: at most `rows` rows and about 16 MiB, and no row after limit.
func (s *Session) Bound(ctx context.Context, after, limit events.Position, rows int) (events.Position, error) {
	bound := limit
	err := s.Conn.QueryRow(ctx, statements.Of(s.Partition, "bound of a chunk of the log"), after.TransactionID, after.Offset,
		limit.TransactionID, limit.Offset, rows).Scan(&bound.TransactionID, &bound.Offset)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return bound, s.wrap(fmt.Errorf("read the log: %w", err))
	}
	return bound, nil
}
