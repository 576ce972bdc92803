// Package renumber adapts a log that was restored or replicated from another
// cluster, whose transaction ids mean nothing here: it gives copied events ids
// that come before everything appended in this cluster.
//
// It does not know the tables of badges: it moves positions, and projectors read again.
// ADR 38 has the reasons.
package renumber

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/pgsession"
)

// Config says which log to renumber and how.
type Config struct {
	// Conn says how to connect to the database. Required.
	Conn *pgx.ConnConfig
	// DryRun looks and changes nothing.
	DryRun bool
	// Report, if not nil, is called with each renumbered partition, after its
	// commit; in a dry run, with each that would be.
	Report func(Result)
	// Blocked, if not nil, is called from time to time while a partition waits
	// for a session that reads its log.
	Blocked func(partition int, by pgsession.Holder)
}

// Result is the result for one partition.
type Result struct {
	Partition int
	// Copied is how many events came from another database. They are
	// renumbered in their order, with every stored position.
	Copied int64
	// Appended is how many events were appended in this database since. They
	// stay as they are, after all others.
	Appended int64
}

// Run makes the log of a restored or replicated database readable here: all
// copied events in their order, then those appended since. Every consumer
// group continues from its position. Then Run begins new epochs, since clients
// may have seen more than the copy has. It reports whether there was anything
// to do.
//
// Each partition is renumbered in its own transaction. After an interruption
// the next call continues with the remaining partitions; until one has
// finished, [events.Open] fails with [events.ErrRestored].
//
// Run fails with [ErrRows] if only rows were copied, into a database that had a log of
// its own.
//
// No projector may run: Run takes all partitions, and fails with a
// [*PartitionOwnedError] if it cannot. Clients may go on appending; other
// consumers wait or have to retry.
func Run(ctx context.Context, cfg Config) (needed bool, err error) {
	if cfg.Blocked == nil {
		cfg.Blocked = func(int, pgsession.Holder) {}
	}
	r := run{cfg: cfg}
	if r.conn, err = pgsession.OpenSession(ctx, cfg.Conn.Copy(), "badged repair-log"); err != nil {
		return false, err
	}
	defer pgsession.CloseSession(ctx, r.conn)
	if err := pgsession.CheckOwner(ctx, r.conn, "renumber the log"); err != nil {
		return false, err
	}
	if err := r.conn.QueryRow(ctx, `SELECT ARRAY(SELECT DISTINCT partition_id::integer FROM badged.log_ranges ORDER BY 1), settled_era IS NOT DISTINCT FROM `+homeEra+` FROM badged.settings`).Scan(&r.partitions, &r.home); err != nil {
		return false, fmt.Errorf("read the settings of the log: %w", err)
	}
	if !cfg.DryRun {
		if err := r.takeAll(ctx); err != nil {
			return false, err
		}
	}
	if err := r.examine(ctx); err != nil {
		return false, err
	}
	if r.home && r.copied {
		return false, ErrRows
	}
	if r.home && len(r.foreign) == 0 {
		return false, nil
	}
	if !cfg.DryRun {
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

// ErrRows is returned if rows were copied from another database into this one, which
// had a log of its own already. What is missing then, such as ranges of the log, cannot be
// seen from the rows.
var ErrRows = errors.New("rows of another database were copied into this one, which `badged migrate up` had created: " +
	"what is missing here is not known; copy the whole database instead, with `pg_dump` into an empty one, or as files")

// PartitionOwnedError is returned if a projector owns a partition.
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
		"SELECT pg_terminate_backend(%[3]d) ends a leftover session", e.Partition, e.Application, e.PID)
}

// run is one call of Run.
type run struct {
	cfg  Config
	conn *pgx.Conn
	// partitions are all that have tables: also those of other shards, and those that were
	// split.
	partitions []int
	// home is set if the log was put in order in this database.
	home bool
	// foreign are the partitions to renumber; copied is set if one has events or
	// positions of another database.
	foreign []int
	copied  bool
}

// takeAll takes every partition for as long as the session lasts.
func (r *run) takeAll(ctx context.Context) error {
	missing := slices.Clone(r.partitions)
	for {
		rows, _ := r.conn.Query(ctx, pgsession.TakeSQL, missing, pgsession.LockClass, len(missing))
		taken, err := pgx.CollectRows(rows, pgx.RowTo[int])
		if err != nil {
			return fmt.Errorf("take the partitions: %w", err)
		}
		missing = slices.DeleteFunc(missing, func(p int) bool { return slices.Contains(taken, p) })
		if len(missing) == 0 {
			return nil
		}
		owned := &PartitionOwnedError{Partition: missing[0]}
		err = r.conn.QueryRow(ctx, pgsession.OwnerSQL, pgsession.LockClass, owned.Partition).Scan(&owned.PID, &owned.Application)
		switch {
		case err == nil:
			return owned
		case !errors.Is(err, pgx.ErrNoRows): // the owner has just gone
			return fmt.Errorf("find the owner of partition %d: %w", owned.Partition, err)
		}
	}
}

// homeEra is the era of this database, -1 if it is missing. Every event and
// position of another era was copied here.
const homeEra = `coalesce((SELECT era FROM badged.log_home), -1)`

// copied is true of events that were copied here and not yet renumbered.
// Events that an earlier run renumbered come first and stay as they are.
const copied = `transaction_id > '3' AND era <> ` + homeEra

// unreachable is true of a position of the projector that is after all future
// events.
const unreachable = `(consumer_group = '` + events.ProjectorGroup + `' AND last_processed_transaction_id > pg_snapshot_xmax(pg_current_snapshot())::text::xid8)`

// examine finds the partitions with copied events or positions, or unreachable ones.
func (r *run) examine(ctx context.Context) error {
	for _, p := range r.partitions {
		var brought, ahead bool
		err := r.conn.QueryRow(ctx, strings.ReplaceAll(`SELECT EXISTS (SELECT FROM badged.TOPIC_offsets WHERE era <> `+homeEra+`)
OR EXISTS (SELECT FROM badged.TOPIC WHERE `+copied+`), EXISTS (SELECT FROM badged.TOPIC_offsets WHERE `+unreachable+`)`,
			"TOPIC", events.Topic(p))).Scan(&brought, &ahead)
		if err != nil {
			return fmt.Errorf("examine partition %d: %w", p, err)
		}
		if brought || ahead {
			r.foreign = append(r.foreign, p)
		}
		r.copied = r.copied || brought
	}
	return nil
}

// begin locks everyone out of the log until finish.
func (r *run) begin(ctx context.Context) error {
	err := pgx.BeginFunc(ctx, r.conn, func(tx pgx.Tx) error {
		// The row is missing where a dump was restored without it.
		if _, err := tx.Exec(ctx, `INSERT INTO badged.log_home DEFAULT VALUES ON CONFLICT DO NOTHING`); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `UPDATE badged.settings SET settled_era = NULL WHERE settled_era = `+homeEra)
		return err
	})
	if err != nil {
		return fmt.Errorf("mark the log as being renumbered: %w", err)
	}
	return nil
}

// StoredPlace is a table with positions of the log, in the columns transaction_id
// and "offset".
type StoredPlace struct {
	Table string
	// partition is the column with the partition.
	partition string
	// event is set if the position is that of an event, and thus unique, rather
	// than one between events.
	event bool
}

// StoredPlaces are the tables with positions of the log, besides the log and
// the positions of its consumers. They are renumbered with it. They must cover
// all columns of type xid8.
func StoredPlaces() []StoredPlace {
	return []StoredPlace{
		{Table: "badged.dead_letters", partition: "partition_id", event: true},
		{Table: "badged.settled_letters", partition: "partition_id", event: true},
		{Table: "badged.dedup_generations", partition: "partition_id"},
		{Table: "badged.baselines", partition: "partition_id"},
		{Table: "badged.late_folds", partition: "partition_id"},
	}
}

// renumber gives the copied events of a partition transaction 3, the first
// that a cluster gives out, with ascending offsets. So they come before
// everything appended here, and can be read at once.
func (r *run) renumber(ctx context.Context, partition int) error {
	done := Result{Partition: partition}
	sql := strings.NewReplacer("TOPIC", events.Topic(partition), "PARTITION", fmt.Sprint(partition))
	err := pgx.BeginFunc(ctx, r.conn, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, sql.Replace(`SELECT count(*) FILTER (WHERE `+copied+`), count(*) FILTER (WHERE transaction_id > '3' AND NOT (`+copied+`))
FROM badged.TOPIC`)).Scan(&done.Copied, &done.Appended)
		if err != nil || r.cfg.DryRun {
			return err
		}
		for _, s := range renumberSQL() {
			if _, err := tx.Exec(ctx, sql.Replace(s)); err != nil {
				return err
			}
		}
		return r.settle(ctx, tx, partition)
	})
	if err == nil && r.cfg.Report != nil && done.Copied > 0 {
		r.cfg.Report(done)
	}
	return err
}

// settle puts the ranges of the log of a partition in order. It waits for
// readers, and appends wait behind it, so it tries only for a moment at a
// time.
func (r *run) settle(ctx context.Context, tx pgx.Tx, partition int) error {
	blocked := pgsession.Blocking{Conn: r.conn, Tell: r.cfg.Blocked, Partition: partition, Tables: []string{"badged." + events.Topic(partition)}}
	for {
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SELECT badged.settle_log_ranges($1)`, partition)
			return err
		})
		if !pgsession.IsLocked(err) {
			return err
		}
		if err := blocked.Wait(ctx); err != nil {
			return err
		}
	}
}

// renumberSQL returns the statements that renumber a partition.
//
// Copied events keep their order: within an era they are ordered by their ids.
// If a copy was copied again before it was renumbered, there are several eras:
// the era of the last renumbering comes first, then later ones. Events of
// transactions that the projector has passed while they were open come right
// after its position, where it would have moved them.
//
// A position moves before the first copied event that it was not past. It was
// past the events of its own era with a lower position; others may have been
// invisible. Positions never move past events appended here, even if a
// consumer has read some since: those that it could not see yet would be lost.
// The rest come twice, which is harmless.
func renumberSQL() []string {
	// The last offset of an earlier renumbering, including archived events.
	taken := `SELECT "offset" FROM badged.TOPIC WHERE transaction_id = '3'`
	for _, s := range StoredPlaces() {
		taken += ` UNION ALL SELECT "offset" FROM ` + s.Table + ` WHERE ` + s.partition + ` = PARTITION AND transaction_id = '3'`
	}
	lastTaken := `coalesce((SELECT max("offset") FROM (` + taken + `) AS taken), 0)`
	// The new offset for a position with the columns era, transaction_id and
	// "offset" of p.
	behind := `coalesce(
        (SELECT min(r.place) - 1 FROM renumbered AS r
         WHERE r.era <> p.era OR r.late OR (r.transaction_id, r."offset") > (p.transaction_id, coalesce(p."offset", 0))),
        (SELECT max(place) FROM renumbered), ` + lastTaken + `)`
	statements := []string{
		// Current readers finish first. A reader that waits here has an old
		// snapshot, which shows later events but not the renumbered ones. Since
		// every position is updated below, changed or not, Postgres makes it
		// start over.
		`LOCK TABLE badged.TOPIC_offsets IN EXCLUSIVE MODE`,
		`CREATE TEMPORARY TABLE renumbered (
    transaction_id xid8, "offset" bigint, era bigint, late boolean, place bigint, PRIMARY KEY (transaction_id, "offset")
) ON COMMIT DROP`,
		`INSERT INTO renumbered
SELECT transaction_id, "offset", era, late, ` + lastTaken + ` + row_number() OVER (
    ORDER BY era IS DISTINCT FROM (SELECT settled_era FROM badged.settings), era,
        CASE WHEN late THEN passed ELSE transaction_id END, CASE WHEN late THEN passed_offset ELSE "offset" END,
        late, transaction_id, "offset")
FROM (SELECT e.transaction_id, e."offset", e.era, o.last_processed_transaction_id AS passed, o.offset_acked AS passed_offset,
             o.consumer_group IS NOT NULL AS late
      FROM badged.TOPIC AS e LEFT JOIN badged.TOPIC_offsets AS o
        ON o.consumer_group = '` + events.ProjectorGroup + `' AND o.era = e.era AND e.transaction_id = ANY (o.pending)
      WHERE e.transaction_id > '3' AND e.era <> ` + homeEra + `) AS e`,
		`ANALYZE renumbered`,
	}
	for _, s := range StoredPlaces() {
		if s.event {
			statements = append(statements, `UPDATE `+s.Table+` AS p
SET transaction_id = '3', "offset" = r.place
FROM renumbered AS r
WHERE p.`+s.partition+` = PARTITION AND r.transaction_id = p.transaction_id AND r."offset" = p."offset"`)
			continue
		}
		// Only the projector writes these, in the era of its position.
		statements = append(statements, `UPDATE `+s.Table+` AS u
SET transaction_id = '3', "offset" = `+behind+`
FROM (SELECT f.*, (SELECT era FROM badged.TOPIC_offsets WHERE consumer_group = '`+events.ProjectorGroup+`') AS era FROM `+s.Table+` AS f) AS p
WHERE u.`+s.partition+` = PARTITION AND p.`+s.partition+` = PARTITION AND p.transaction_id > '3'
  AND u.transaction_id = p.transaction_id AND u."offset" = p."offset"`)
	}
	return append(statements,
		`UPDATE badged.TOPIC_offsets AS o
SET last_processed_transaction_id = least(o.last_processed_transaction_id::text::bigint, 3)::text::xid8,
    offset_acked = CASE WHEN p.transaction_id > '3' THEN `+behind+` ELSE p."offset" END,
    pending = '{}', era = `+homeEra+`
FROM (SELECT consumer_group, era, last_processed_transaction_id AS transaction_id, offset_acked AS "offset"
      FROM badged.TOPIC_offsets) AS p
WHERE p.consumer_group = o.consumer_group`,
		`UPDATE badged.TOPIC AS e
SET transaction_id = '3', "offset" = r.place
FROM renumbered AS r
WHERE r.transaction_id = e.transaction_id AND r."offset" = e."offset"`)
}

// finish begins new epochs, raises sequences that lag behind their tables, and marks the
// log as belonging here.
func (r *run) finish(ctx context.Context) error {
	err := pgx.BeginFunc(ctx, r.conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `UPDATE badged.partitions SET epoch = substr(replace(gen_random_uuid()::text, '-', ''), 1, 12)`); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, raiseSequencesSQL); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `UPDATE badged.settings SET settled_era = `+homeEra)
		return err
	})
	if err != nil {
		return fmt.Errorf("finish renumbering: %w", err)
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
