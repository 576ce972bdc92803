// Package replay folds the log of a partition again, in memory and beside the
// live tables, with the fold that fills them. It verifies and heals the
// tables, explains a badge, and verifies samples in the background.
//
// It does not know the loop that folds, nor its cache or SQL, so that it finds their
// errors. ADR 12 has the reasons.
package replay

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/archive"
	"github.com/badged/badged/projector/internal/logread"
	"github.com/badged/badged/projector/internal/store"
)

// Snapshot is one partition in one snapshot of the database: its tables, the
// position up to which they are folded, and the log up to there. The log
// begins at a baseline or with the archive.
type Snapshot struct {
	Tx                    pgx.Tx
	Partition, Partitions int
	// Cursor is up to where the tables are folded.
	logread.Cursor
	// Letters are not in the tables.
	Letters store.Letters
	// Generations are the places where key generations begin.
	Generations []store.Generation
	Baseline    Baseline
	// archive, if not nil, is folded instead of starting at the baseline.
	archive *archive.Archive
	files   []archive.File
}

// WithSnapshot calls f with the current snapshot of a partition, in a
// read-only transaction.
func WithSnapshot(ctx context.Context, pool *pgxpool.Pool, partition, partitions int, f func(*Snapshot) error) error {
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	return pgx.BeginTxFunc(ctx, pool, options, func(tx pgx.Tx) error {
		// f may work for long between its queries; nothing waits for it.
		if _, err := tx.Exec(ctx, `SET LOCAL idle_in_transaction_session_timeout = 0`); err != nil {
			return fmt.Errorf("set up the transaction: %w", err)
		}
		// Lock before the first query takes the snapshot: tables that a rebuild
		// swapped in between would be at another position.
		if _, err := tx.Exec(ctx, statements.Of(partition, "lock the tables")); err != nil {
			return fmt.Errorf("lock the tables of partition %d: %w", partition, err)
		}
		in := &Snapshot{Tx: tx, Partition: partition, Partitions: partitions}
		if err := in.Open(ctx, ""); err != nil {
			return err
		}
		return f(in)
	})
}

// Open reads the position, the dead letters, the key generations and the
// baseline. lock is the locking clause for the row of the position, "" for
// none.
func (in *Snapshot) Open(ctx context.Context, lock string) error {
	if err := keepLog(ctx, in.Tx, in.Partition); err != nil {
		return err
	}
	if _, err := in.Tx.Exec(ctx, statements.Get("plan a replay")); err != nil {
		return fmt.Errorf("set up the transaction: %w", err)
	}
	var err error
	if in.Cursor, err = logread.Load(ctx, in.Tx, in.Partition, lock); err != nil {
		return err
	}
	if in.Letters, err = store.LoadLetters(ctx, in.Tx, in.Partition, events.Position{}); err != nil {
		return err
	}
	if in.Generations, err = store.LoadGenerations(ctx, in.Tx, in.Partition); err != nil {
		return err
	}
	in.Baseline, err = LoadBaseline(ctx, in.Tx, in.Partition)
	return err
}

// keepLog prevents archiving from cutting the log of a partition until the
// transaction ends.
func keepLog(ctx context.Context, tx pgx.Tx, partition int) error {
	if _, err := tx.Exec(ctx, statements.Of(partition, "lock the log")); err != nil {
		return fmt.Errorf("lock the log of partition %d: %w", partition, err)
	}
	return nil
}

// ScanTables allows or forbids sequential scans, which beat an index only if
// the order of rows does not matter.
func (in *Snapshot) ScanTables(ctx context.Context, on bool) error {
	if _, err := in.Tx.Exec(ctx, fmt.Sprintf(`SET LOCAL enable_seqscan = %t`, on)); err != nil {
		return fmt.Errorf("set up the transaction: %w", err)
	}
	return nil
}

// Item decodes a record as a batch does. The error is the reason why it is not
// folded.
func (in *Snapshot) Item(r *events.Record) (store.Item, error) {
	return in.Letters.Item(r, in.Partition, in.Partitions)
}

// Length returns how many records a replay visits: of the archive, and of the
// log up to the position.
func (in *Snapshot) Length(ctx context.Context) (int64, error) {
	var n int64
	err := in.Tx.QueryRow(ctx, statements.Of(in.Partition, "count the log"), in.folded(in.Baseline.Position)...).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count the events of partition %d: %w", in.Partition, err)
	}
	if in.archive != nil {
		n += in.Baseline.Events
	}
	return n, nil
}

// folded returns the arguments of the condition, by logread.After(1) and
// logread.UpTo(3), that a record is after a position and in the tables.
func (in *Snapshot) folded(after events.Position) []any {
	return append([]any{after.TransactionID, after.Offset}, in.Args()...)
}
