// Package renumber repairs a log that was restored or replicated from another Postgres cluster.
// The transaction ids of the copied events have no meaning in this cluster. So the package assigns
// new places to the copied events, before all events that this cluster appends.
//
// It does not know the tables of badges. It changes the places of events and the positions of
// readers of the log, and projectors continue at the changed positions. ADR 38 has the reasons.
package renumber

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/partition"
	"github.com/badged/badged/internal/pg/pgsession"
	"github.com/badged/badged/internal/pg/query"
)

// Config configures Run.
type Config struct {
	// Conn configures the connection to the database. Required.
	Conn *pgx.ConnConfig
	// DryRun makes Run report what it would do, and change nothing.
	DryRun bool
	// Report, if not nil, is called with the result for each partition that has copied events.
	// Run calls it after the commit, or in a dry run after counting the events.
	Report func(Result)
	// Blocked, if not nil, is called repeatedly while a transaction of another session has a lock
	// on the log of a partition and delays Run.
	Blocked func(partition int, holder pgsession.Holder)
}

// Result is the result for one partition.
type Result struct {
	Partition int
	// Copied is the number of events from another database. Run assigns new places to these events
	// in the same order, and adapts every stored position.
	Copied int64
	// Appended is the number of events that were appended in this database. Run does not change
	// them; they come after all copied events.
	Appended int64
}

// Run makes the log of a restored or replicated database readable. Afterwards the log first has all
// copied events, in their original order, and then the events appended in this database. Every
// consumer group continues at its position. Clients may have seen events that the copy does not
// have: so Run begins new epochs, which makes clients read all state again. Run reports whether
// there was anything to renumber.
//
// Run renumbers each partition in a transaction of its own. After an interruption the next call
// continues with the remaining partitions. Until a call has completed all partitions,
// [events.Open] fails with [events.ErrRestored].
//
// Run fails with [ErrRows] if rows of another database were copied into a database that already
// had a log of its own.
//
// All projectors must be stopped first: Run locks all partitions, and fails with a
// [*PartitionOwnedError] if a projector owns a partition. Publishers may append while Run works.
// Reads by other consumer groups block, or fail and must be retried.
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
		if err := r.lockAll(ctx); err != nil {
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

// ErrRows is returned if rows were copied from another database into a database that already had
// a log of its own. Renumbering cannot repair this: the copied rows do not show which other data,
// such as ranges of the log, was not copied.
var ErrRows = errors.New("rows of another database were copied into this one, which `badged migrate up` had created: " +
	"what is missing here is not known; copy the whole database instead, with `pg_dump` into an empty one, or as files")

// PartitionOwnedError is returned if a projector owns a partition.
type PartitionOwnedError struct {
	Partition int
	// PID is the Postgres process of the owner's session, and Application its application_name.
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
	// partitions are all partitions that have tables in this database, including partitions that
	// were split or that another database holds.
	partitions []int
	// home is true if the log was created in this database, or was completely renumbered in it.
	home bool
	// foreign are the partitions to renumber. copied is true if any of these partitions has
	// events or positions from another database.
	foreign []int
	copied  bool
}

// lockAll locks every partition until the session ends.
func (r *run) lockAll(ctx context.Context) error {
	missing := slices.Clone(r.partitions)
	for {
		taken, err := query.All(ctx, r.conn, "lock the partitions", pgx.RowTo[int], pgsession.TakeSQL, missing, pgsession.LockClass, len(missing))
		if err != nil {
			return err
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
		case !errors.Is(err, pgx.ErrNoRows): // no rows: the owner has just ended
			return fmt.Errorf("find the owner of partition %d: %w", owned.Partition, err)
		}
	}
}

// homeEra is an SQL expression for the era of this database, or -1 if the table log_home has no
// row. Events and positions with another era were copied from another database.
const homeEra = `coalesce((SELECT era FROM badged.log_home), -1)`

// copied is an SQL condition for events that were copied into this database and are not
// renumbered yet. Events that an earlier run has renumbered have transaction id 3.
const copied = `transaction_id > '3' AND era <> ` + homeEra

// unreachable is an SQL condition for a position of the projector whose transaction id this cluster
// has not reached yet. The projector would skip all events with lower transaction ids.
const unreachable = `(consumer_group = '` + events.ProjectorGroup + `' AND last_processed_transaction_id > pg_snapshot_xmax(pg_current_snapshot())::text::xid8)`

// examine determines which partitions have copied events, copied positions or unreachable
// positions.
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

// begin marks the log as being renumbered: from then on events.Open fails until finish has
// committed.
func (r *run) begin(ctx context.Context) error {
	err := pgx.BeginFunc(ctx, r.conn, func(tx pgx.Tx) error {
		// A dump may have been restored without this row.
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

// renumber changes the places of the copied events of a partition: they get the transaction id 3,
// the lowest id of a transaction in any cluster, and ascending offsets. So the copied events come
// before all events that this cluster appends, and readers need not wait for an open transaction
// before they read them.
func (r *run) renumber(ctx context.Context, number int) error {
	done := Result{Partition: number}
	sql := strings.NewReplacer("TOPIC", events.Topic(number), "PARTITION", fmt.Sprint(number))
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
		return r.settle(ctx, tx, number)
	})
	if err == nil && r.cfg.Report != nil && done.Copied > 0 {
		r.cfg.Report(done)
	}
	return err
}

// settle reorganizes the ranges of the log of a partition. It locks the log, and appends queue
// behind its lock request. So it waits for readers only briefly before it withdraws the request
// and tries again.
func (r *run) settle(ctx context.Context, tx pgx.Tx, number int) error {
	blocked := pgsession.Blocking{Conn: r.conn, Report: r.cfg.Blocked, Partition: number, Tables: []string{partition.Log(number)}}
	return blocked.Retry(ctx, tx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `SELECT badged.settle_log_ranges($1)`, number)
		return err
	})
}

// renumberSQL returns the statements that renumber a partition.
//
// The order of copied events does not change. Events of one era were appended in the same database,
// and are ordered by transaction id and offset. The copied events have several eras if a copy
// appended events and was itself copied before it was renumbered. Then the era of the database that
// was renumbered last comes first, and the other eras follow in ascending order, which is the order
// in which they began. Events of transactions that were pending for the projector come directly
// after the projector's position, since the projector would have moved them to this place.
//
// The position of a consumer group is set directly before the first copied event that the group
// may not have read. The group has read the events of its position's era up to the position, except
// perhaps events of pending transactions. All other events count as not read. Events that this
// database has appended since it was copied stay behind the copied events, and so behind the new
// position: a group that has read some of them reads them twice, which is harmless.
func renumberSQL() []string {
	// lastTaken is an SQL expression for the last offset that an earlier renumbering has assigned,
	// perhaps to an event that is archived now.
	lastTaken := `coalesce((SELECT max("offset") FROM (
        SELECT transaction_id, "offset" FROM badged.TOPIC UNION ALL ` + partition.PlacesSQL("PARTITION") + `) AS taken WHERE transaction_id = '3'), 0)`
	// newOffset is an SQL expression for the new offset of a position p, which has the columns era,
	// transaction_id and "offset".
	newOffset := `coalesce(
        (SELECT min(r.place) - 1 FROM renumbered AS r
         WHERE r.era <> p.era OR r.late OR (r.transaction_id, r."offset") > (p.transaction_id, coalesce(p."offset", 0))),
        (SELECT max(place) FROM renumbered), ` + lastTaken + `)`
	statements := []string{
		// Wait until current readers have finished. A reader that waits for this lock already has
		// a snapshot without the renumbered events. So a statement below updates the row of every
		// position, even if the position does not change: then Postgres makes such a reader start
		// over.
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
	for _, t := range partition.WithPlaces() {
		if t.Places == partition.OfRow {
			statements = append(statements, `UPDATE badged.`+t.Kind+` AS p
SET transaction_id = '3', "offset" = r.place
FROM renumbered AS r
WHERE p.partition_id = PARTITION AND r.transaction_id = p.transaction_id AND r."offset" = p."offset"`)
			continue
		}
		// Only the projector writes these places, so their era is the era of its position.
		statements = append(statements, `UPDATE badged.`+t.Kind+` AS u
SET transaction_id = '3', "offset" = `+newOffset+`
FROM (SELECT f.*, (SELECT era FROM badged.TOPIC_offsets WHERE consumer_group = '`+events.ProjectorGroup+`') AS era FROM badged.`+t.Kind+` AS f) AS p
WHERE u.partition_id = PARTITION AND p.partition_id = PARTITION AND p.transaction_id > '3'
  AND u.transaction_id = p.transaction_id AND u."offset" = p."offset"`)
	}
	return append(statements,
		`UPDATE badged.TOPIC_offsets AS o
SET last_processed_transaction_id = least(o.last_processed_transaction_id::text::bigint, 3)::text::xid8,
    offset_acked = CASE WHEN p.transaction_id > '3' THEN `+newOffset+` ELSE p."offset" END,
    pending = '{}', era = `+homeEra+`
FROM (SELECT consumer_group, era, last_processed_transaction_id AS transaction_id, offset_acked AS "offset"
      FROM badged.TOPIC_offsets) AS p
WHERE p.consumer_group = o.consumer_group`,
		`UPDATE badged.TOPIC AS e
SET transaction_id = '3', "offset" = r.place
FROM renumbered AS r
WHERE r.transaction_id = e.transaction_id AND r."offset" = e."offset"`)
}

// finish begins a new epoch in each partition, and sets each sequence to the greatest number in its
// table if the sequence is below it. It stores the era of this database as the era of the log.
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
