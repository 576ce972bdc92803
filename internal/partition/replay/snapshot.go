// Package replay folds the log of a partition again, in memory, with the same fold that fills
// the tables. It verifies and heals the tables, explains badges, and verifies samples in the
// background.
//
// It does not know the projector's loop, cache or SQL. So errors in these parts show as differences
// between a replay and the tables. ADR 12 has the reasons.
package replay

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/fold/logread"
	"github.com/badged/badged/internal/fold/store"
	"github.com/badged/badged/internal/partition/archive"
	"github.com/badged/badged/internal/pg/query"
)

// Snapshot is one partition in one snapshot of the database: its tables, the position up to
// which the tables are folded, and the log up to that position. A replay of the log begins at the
// baseline, or with the events of an archive.
type Snapshot struct {
	Tx                    pgx.Tx
	Partition, Partitions int
	// Cursor is the position up to which the tables are folded, with the pending transactions.
	logread.Cursor
	// Generations says where the generations of event keys begin.
	Generations []store.Generation
	Baseline    Baseline
	// archive, if not nil, has the events to fold before the log. files are the archive's files of
	// the partition. If archive is nil, a replay starts at the baseline.
	archive *archive.Archive
	files   []archive.File
	// archived has the places of the dead letters among the events of these files.
	archived store.Letters
}

// WithSnapshot calls f with the current snapshot of a partition, in a read-only transaction.
func WithSnapshot(ctx context.Context, pool *pgxpool.Pool, partition, partitions int, f func(*Snapshot) error) error {
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	return pgx.BeginTxFunc(ctx, pool, options, func(tx pgx.Tx) error {
		// Disable the timeout, since f may work for a long time between its queries. That is
		// harmless: no other session waits for this transaction.
		if err := query.Exec(ctx, tx, "set up the transaction", `SET LOCAL idle_in_transaction_session_timeout = 0`); err != nil {
			return err
		}
		// Lock the tables before the first query, which creates the snapshot. Otherwise a rebuild
		// could swap the tables between the snapshot and the lock, and f would read tables that
		// are folded up to another position.
		if err := query.Exec(ctx, tx, fmt.Sprintf("lock the tables of partition %d", partition), statements.Of(partition, "lock the tables")); err != nil {
			return err
		}
		snapshot := &Snapshot{Tx: tx, Partition: partition, Partitions: partitions}
		if err := snapshot.Open(ctx, ""); err != nil {
			return err
		}
		return f(snapshot)
	})
}

// Now returns the present state of a partition, without a transaction.
func Now(ctx context.Context, pool *pgxpool.Pool, partition, partitions int) (now Snapshot, err error) {
	err = WithSnapshot(ctx, pool, partition, partitions, func(snapshot *Snapshot) error {
		now = *snapshot
		return nil
	})
	return now, err
}

// Open reads the position, the generations of event keys and the baseline. `lock` is the locking
// clause for the row of the position, such as FOR UPDATE; "" means no lock.
func (snapshot *Snapshot) Open(ctx context.Context, lock string) error {
	// Until the transaction ends, archiving does not remove events from the log.
	err := query.Exec(ctx, snapshot.Tx, fmt.Sprintf("lock the log of partition %d", snapshot.Partition), statements.Of(snapshot.Partition, "lock the log"))
	if err != nil {
		return err
	}
	if err := query.Exec(ctx, snapshot.Tx, "set up the transaction", statements.Get("plan a replay")); err != nil {
		return err
	}
	if snapshot.Cursor, err = logread.Load(ctx, snapshot.Tx, snapshot.Partition, lock); err != nil {
		return err
	}
	if snapshot.Generations, err = store.LoadGenerations(ctx, snapshot.Tx, snapshot.Partition); err != nil {
		return err
	}
	snapshot.Baseline, err = LoadBaseline(ctx, snapshot.Tx, snapshot.Partition)
	return err
}

// ScanTables permits or forbids sequential scans in the transaction. If a query must return sorted
// rows, a sequential scan is slower than an index scan; if it reads a whole table in any order, a
// sequential scan is faster.
func (snapshot *Snapshot) ScanTables(ctx context.Context, enabled bool) error {
	return query.Exec(ctx, snapshot.Tx, "set up the transaction", fmt.Sprintf(`SET LOCAL enable_seqscan = %t`, enabled))
}

// LettersOf reads which events of consecutive records are dead letters, which are not folded.
func (snapshot *Snapshot) LettersOf(ctx context.Context, records []events.Record) (store.Letters, error) {
	if len(records) == 0 {
		return store.Letters{}, nil
	}
	return store.LoadLetters(ctx, snapshot.Tx, snapshot.Partition, records[0].Position, records[len(records)-1].Position)
}

// Item decodes a record as the projector does. `letters` must include the dead letters of the
// record. If the record must not be folded, Item returns the reason as an error.
func (snapshot *Snapshot) Item(r *events.Record, letters *store.Letters) (store.Item, error) {
	item, err := letters.Item(r, snapshot.Partition, snapshot.Partitions)
	if err == nil && snapshot.archived.Buried(r.Place) {
		return store.Item{}, store.ErrBuried
	}
	return item, err
}

// Length returns the number of records that a replay reads: the records of the log from the
// baseline up to the position, and all records of the archive if the replay starts with it.
func (snapshot *Snapshot) Length(ctx context.Context) (int64, error) {
	what := fmt.Sprintf("count the events of partition %d", snapshot.Partition)
	n, err := query.One[int64](ctx, snapshot.Tx, what, statements.Of(snapshot.Partition, "count the log"), snapshot.folded(snapshot.Baseline.Position)...)
	if snapshot.archive != nil {
		n += snapshot.Baseline.Events
	}
	return n, err
}

// folded returns the arguments of the SQL condition "folded after". These arguments come first in
// the statements with this condition. The condition is true for a row of the log that comes after
// the position `after` and is folded in the tables.
func (snapshot *Snapshot) folded(after events.Position) []any {
	return append([]any{after.TransactionID, after.Offset}, snapshot.Args()...)
}
