package projector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
)

// RepairConfig says which log to repair and how.
type RepairConfig struct {
	// Conn is how to connect to the database. Required.
	Conn *pgx.ConnConfig
	// DryRun looks, and changes nothing.
	DryRun bool
	// Report, if there is one, is told of each partition that is renumbered,
	// after its commit; in a dry run, of each that would be.
	Report func(PartitionRepair)
	// Blocked, if there is one, is told now and then whom the repair of a partition
	// waits for: a session that reads its log and does not end.
	Blocked func(partition, pid int, application string)
}

// PartitionRepair is what is done to one partition.
type PartitionRepair struct {
	Partition int
	// Copied is how many events came from another cluster. They are renumbered,
	// in their order, and every place in the log that was kept with them.
	Copied int64
	// Appended is how many were appended in this cluster since. They stay as
	// they are, behind all the others.
	Appended int64
}

// RepairLog makes the log of a restored or replicated database one that was
// written in this cluster: all events can be read, in the order in which they
// were, those appended since behind them, and every consumer group goes on
// where it stood. Then it starts new epochs, since clients may have seen more
// than the copy holds. It reports whether there was anything to do.
//
// Each partition is renumbered in a transaction of its own. Whoever is
// interrupted calls it again, and it goes on with the partitions that are left;
// until it has come to its end [events.Open] fails with [events.ErrRestored].
//
// No projector may run: it takes all partitions, and fails with a
// [*PartitionOwnedError] where it cannot. Appending may go on; consumers beside
// the projector wait, or have to try again.
func RepairLog(ctx context.Context, cfg RepairConfig) (needed bool, err error) {
	if cfg.Blocked == nil {
		cfg.Blocked = func(int, int, string) {}
	}
	r := repair{cfg: cfg}
	if r.conn, err = OpenSession(ctx, cfg.Conn.Copy(), "badged repair-log"); err != nil {
		return false, err
	}
	defer func() { // which also gives the partitions up
		closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = r.conn.Close(closeCtx) // it may be broken already
	}()
	if err := r.conn.QueryRow(ctx, `SELECT partitions, `+events.AtHomeSQL+` FROM badged.settings`).Scan(&r.partitions, &r.home); err != nil {
		return false, fmt.Errorf("look where the log is at home: %w", err)
	}
	if !cfg.DryRun {
		if err := r.takeAll(ctx); err != nil {
			return false, err
		}
	}
	if err := r.examine(ctx); err != nil {
		return false, err
	}
	if r.home && len(r.foreign) == 0 {
		return false, nil
	}
	if r.home && !cfg.DryRun {
		if err := r.begin(ctx); err != nil {
			return true, err
		}
	}
	for _, p := range r.foreign {
		if err := r.renumber(ctx, p); err != nil {
			return true, fmt.Errorf("renumber partition %d: %w", p, err)
		}
	}
	if cfg.DryRun {
		return true, nil
	}
	return true, r.finish(ctx)
}

// PartitionOwnedError says that somebody folds a partition that has to be
// taken.
type PartitionOwnedError struct {
	Partition int
	// PID is the Postgres process of the owner's session, and Application its
	// application_name.
	PID         int
	Application string
}

// Error implements error.
func (e *PartitionOwnedError) Error() string {
	return fmt.Sprintf("partition %d is owned by %q (Postgres process %d): stop every badged server first; "+
		"SELECT pg_terminate_backend(%[3]d) ends a session that is left over", e.Partition, e.Application, e.PID)
}

// repair is one run of RepairLog.
type repair struct {
	cfg        RepairConfig
	conn       *pgx.Conn
	partitions int
	home       bool
	// foreign are the partitions with events or positions of another cluster.
	foreign []int
	// copiedBy is the youngest transaction known to have copied some of them.
	copiedBy int64
}

// takeAll takes every partition for as long as the session lasts.
func (r *repair) takeAll(ctx context.Context) error {
	missing := make([]int, r.partitions)
	for i := range missing {
		missing[i] = i
	}
	for {
		rows, err := r.conn.Query(ctx, takeSQL, missing, lockClass, len(missing))
		if err != nil {
			return fmt.Errorf("take the partitions: %w", err)
		}
		taken, err := pgx.CollectRows(rows, pgx.RowTo[int])
		if err != nil {
			return fmt.Errorf("take the partitions: %w", err)
		}
		missing = slices.DeleteFunc(missing, func(p int) bool { return slices.Contains(taken, p) })
		if len(missing) == 0 {
			return nil
		}
		owned := &PartitionOwnedError{Partition: missing[0]}
		err = r.conn.QueryRow(ctx, ownerSQL, lockClass, owned.Partition).Scan(&owned.PID, &owned.Application)
		switch {
		case err == nil:
			return owned
		case !errors.Is(err, pgx.ErrNoRows): // where it has gone meanwhile
			return fmt.Errorf("find the owner of partition %d: %w", owned.Partition, err)
		}
	}
}

const ownerSQL = `SELECT a.pid, a.application_name
FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.classid = $1 AND l.objid = $2`

// writtenBy is the transaction that wrote a row. Postgres keeps 32 bits of its
// id: it is the youngest that they can mean. An event is never older than its
// transaction id where it was appended, so one that is was copied.
const writtenBy = `(next - 1 - ((next - 1 - xmin::text::bigint) & 4294967295))`

// nextID is what writtenBy calls next. No row that a statement can see is of it
// or a later one.
const nextID = `(SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next)`

// examine finds out which partitions hold what another cluster has numbered.
func (r *repair) examine(ctx context.Context) error {
	if !r.home {
		// A row of transaction 0 was not copied: an earlier repair wrote it, or
		// the migration that found a copied log.
		err := r.conn.QueryRow(ctx, `SELECT coalesce(max(`+writtenBy+`), 0)
FROM badged.log_origin, `+nextID+` AS n
WHERE transaction_id > '0'`).Scan(&r.copiedBy)
		if err != nil {
			return fmt.Errorf("look when the log was copied: %w", err)
		}
	}
	for p := range r.partitions {
		var n, copiedBy int64
		err := r.conn.QueryRow(ctx, strings.ReplaceAll(`SELECT count(*), coalesce(max(written), 0)
FROM (SELECT transaction_id AS id, `+writtenBy+` AS written FROM badged.TOPIC, `+nextID+` AS n
      UNION ALL
      SELECT last_processed_transaction_id, `+writtenBy+` FROM badged.TOPIC_offsets, `+nextID+` AS n) AS x
WHERE id::text::bigint > written`, "TOPIC", events.Topic(p))).Scan(&n, &copiedBy)
		if err != nil {
			return fmt.Errorf("examine partition %d: %w", p, err)
		}
		if n > 0 {
			r.foreign = append(r.foreign, p)
			r.copiedBy = max(r.copiedBy, copiedBy)
		}
	}
	return nil
}

// begin keeps everybody off a log until finish that looks as if it were at
// home, since only some tables were copied.
func (r *repair) begin(ctx context.Context) error {
	if _, err := r.conn.Exec(ctx, setOriginSQL, "0"); err != nil {
		return fmt.Errorf("mark the log as being repaired: %w", err)
	}
	return nil
}

// setOriginSQL says by which transaction the row of the log's origin is
// written. $1 is null for the one at hand.
const setOriginSQL = `INSERT INTO badged.log_origin (transaction_id, table_id)
VALUES (coalesce($1::text::xid8, pg_current_xact_id()), 'badged.log_origin'::regclass)
ON CONFLICT (singleton) DO UPDATE
SET transaction_id = excluded.transaction_id, table_id = excluded.table_id`

// storedPlace is a table that keeps places in the log, as the columns
// transaction_id and "offset".
type storedPlace struct {
	table string
	// partition is the column that says of which partition.
	partition string
	// event is set where a place is that of an event, which is one of a kind,
	// and not one between events.
	event bool
}

// storedPlaces are the tables that keep places in the log besides the log and
// the positions of its consumers: they are renumbered with it. All columns of
// type xid8 must be covered.
func storedPlaces() []storedPlace {
	return []storedPlace{
		{table: "badged.dead_letters", partition: "partition_id", event: true},
		{table: "badged.dedup_generations", partition: "partition_id"},
		{table: "badged.bases", partition: "partition_id"},
	}
}

// copied says which events were copied, given that $1 is the youngest
// transaction that is known to have done so: those with a number that was not
// given out yet, and those written by then, but for what was appended
// meanwhile. An event that is taken for appended is folded again, and its key
// says that it was; one taken for copied might never be.
//
// What an earlier repair renumbered is left as it is: it comes first already.
const copied = `transaction_id > '3' AND (
    transaction_id::text::bigint > ` + writtenBy + `
    OR ` + writtenBy + ` <= $1 AND transaction_id::text::bigint <> ` + writtenBy + `)`

// renumber makes the copied events of a partition those of transaction 3, the
// first that a cluster gives out, one behind the other: so they come before
// everything that is appended here, and can be read at once.
func (r *repair) renumber(ctx context.Context, partition int) error {
	done := PartitionRepair{Partition: partition}
	sql := strings.NewReplacer("TOPIC", events.Topic(partition), "PARTITION", fmt.Sprint(partition))
	err := pgx.BeginFunc(ctx, r.conn, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, sql.Replace(`SELECT count(*) FILTER (WHERE `+copied+`), count(*) FILTER (WHERE transaction_id > '3' AND NOT (`+copied+`))
FROM badged.TOPIC, `+nextID+` AS n`), r.copiedBy).Scan(&done.Copied, &done.Appended)
		if err != nil || r.cfg.DryRun {
			return err
		}
		for _, s := range renumberSQL() {
			var args []any
			if strings.Contains(s, "$1") {
				args = []any{r.copiedBy}
			}
			if _, err := tx.Exec(ctx, sql.Replace(s), args...); err != nil {
				return err
			}
		}
		return r.settle(ctx, tx, partition)
	})
	if err == nil && r.cfg.Report != nil {
		r.cfg.Report(done)
	}
	return err
}

// settle puts the ranges of the log of a partition in order. Whoever appends waits
// behind it while it waits for those who read: so it does that for an instant at
// a time.
func (r *repair) settle(ctx context.Context, tx pgx.Tx, partition int) error {
	blocked := blocking{conn: r.conn, tell: r.cfg.Blocked, partition: partition, tables: []string{"badged." + events.Topic(partition)}}
	for {
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SELECT badged.settle_log_ranges($1)`, partition)
			return err
		})
		if !isLocked(err) {
			return err
		}
		if err := blocked.wait(ctx); err != nil {
			return err
		}
	}
}

// renumberSQL are the statements that renumber a partition. A position goes
// behind the last of the copied events that it was behind. Events appended
// here are in front of none, also where a consumer has come past them since:
// those that it could not see yet would be lost otherwise, and the rest come
// twice, which is harmless.
func renumberSQL() []string {
	// The last place of what an earlier repair renumbered: also of events that are
	// archived, and in the log no more.
	taken := `SELECT "offset" FROM badged.TOPIC WHERE transaction_id = '3'`
	for _, s := range storedPlaces() {
		taken += ` UNION ALL SELECT "offset" FROM ` + s.table + ` WHERE ` + s.partition + ` = PARTITION AND transaction_id = '3'`
	}
	base := `coalesce((SELECT max("offset") FROM (` + taken + `) AS taken), 0)`
	// The place of a row's transaction_id and "offset", as columns of p.
	behind := `coalesce((SELECT r.place FROM renumbered AS r
        WHERE (r.transaction_id, r."offset") <= (p.transaction_id, coalesce(p."offset", 0))
        ORDER BY r.transaction_id DESC, r."offset" DESC LIMIT 1), (SELECT min(place) - 1 FROM renumbered), ` + base + `)`
	statements := []string{
		// A subscriber that is reading now ends first. One that waits here has
		// an old view of the log, in which what is renumbered cannot be seen
		// but what comes behind it can; since every position is written below,
		// changed or not, Postgres makes it start over.
		`LOCK TABLE badged.TOPIC_offsets IN EXCLUSIVE MODE`,
		`CREATE TEMPORARY TABLE renumbered (
    transaction_id xid8, "offset" bigint, place bigint, PRIMARY KEY (transaction_id, "offset")
) ON COMMIT DROP`,
		`INSERT INTO renumbered
SELECT transaction_id, "offset", ` + base + ` + row_number() OVER (ORDER BY transaction_id, "offset")
FROM badged.TOPIC, ` + nextID + ` AS n
WHERE ` + copied,
		`ANALYZE renumbered`,
		`UPDATE badged.TOPIC_offsets AS o
SET last_processed_transaction_id = least(o.last_processed_transaction_id::text::bigint, 3)::text::xid8,
    offset_acked = CASE WHEN p.transaction_id > '3' THEN ` + behind + ` ELSE p."offset" END
FROM (SELECT consumer_group, last_processed_transaction_id AS transaction_id, offset_acked AS "offset"
      FROM badged.TOPIC_offsets) AS p
WHERE p.consumer_group = o.consumer_group`,
	}
	for _, s := range storedPlaces() {
		if s.event {
			statements = append(statements, `UPDATE `+s.table+` AS p
SET transaction_id = '3', "offset" = r.place
FROM renumbered AS r
WHERE p.`+s.partition+` = PARTITION AND r.transaction_id = p.transaction_id AND r."offset" = p."offset"`)
			continue
		}
		statements = append(statements, `UPDATE `+s.table+` AS p
SET transaction_id = '3', "offset" = `+behind+`
WHERE p.`+s.partition+` = PARTITION AND p.transaction_id > '3'`)
	}
	return append(statements, `UPDATE badged.TOPIC AS e
SET transaction_id = '3', "offset" = r.place
FROM renumbered AS r
WHERE r.transaction_id = e.transaction_id AND r."offset" = e."offset"`)
}

// finish starts new epochs, brings the sequences up to what was copied, which
// replication does not, and says that the log is at home.
func (r *repair) finish(ctx context.Context) error {
	err := pgx.BeginFunc(ctx, r.conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `UPDATE badged.partitions SET epoch = substr(replace(gen_random_uuid()::text, '-', ''), 1, 12)`); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, raiseSequencesSQL); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, setOriginSQL, nil)
		return err
	})
	if err != nil {
		return fmt.Errorf("finish the repair: %w", err)
	}
	return nil
}

const raiseSequencesSQL = `DO $$
DECLARE
    c record;
BEGIN
    FOR c IN
        SELECT a.attrelid::regclass AS table_name, a.attname AS column_name,
            pg_get_serial_sequence(a.attrelid::regclass::text, a.attname) AS sequence
        FROM pg_attribute AS a JOIN pg_class AS t ON t.oid = a.attrelid
        WHERE t.relnamespace = 'badged'::regnamespace AND t.relkind IN ('r', 'p') AND NOT t.relispartition AND a.attidentity <> ''
    LOOP
        EXECUTE format('SELECT setval(%L, last) FROM (SELECT max(%I) AS last FROM %s) AS m, %s AS s WHERE last > s.last_value',
            c.sequence, c.column_name, c.table_name, c.sequence);
    END LOOP;
END
$$`
