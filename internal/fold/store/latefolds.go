package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
)

// Most events are folded milliseconds after they were appended. A batch may fold later than
// lateFold, because a transaction was open or the projector was behind. Such a batch stores
// its time and its range of positions. Explanations of past badges use these late-fold
// records.

// lateFold is the delay between append and fold beyond which a batch stores a late-fold
// record.
const lateFold = time.Second

// queueLateFold adds to writes the statement that records a late fold, if b is late.
func (b *Batch) queueLateFold(writes *pgx.Batch, partition int) {
	if b.readAt.Sub(b.Oldest) > lateFold {
		writes.Queue(statements.Get("record a late fold"), partition, b.From.TransactionID, b.From.Offset, b.To.TransactionID, b.To.Offset)
	}
}

// FoldTimes says when the events of a partition were folded.
type FoldTimes struct {
	records []lateRecord
	latest  time.Time
}

// lateRecord is a run of events: those after the end of the previous lateRecord, up to the
// position `to`. All of them were folded at the time `at`; if `at` is zero, they were folded
// without delay.
type lateRecord struct {
	to events.Position
	at time.Time
}

// LoadFoldTimes reads the late-fold records of a partition.
func LoadFoldTimes(ctx context.Context, q events.Querier, partition int) (*FoldTimes, error) {
	rows, err := q.Query(ctx, statements.Get("read the late folds"), partition)
	if err != nil {
		return nil, fmt.Errorf("read the late folds of partition %d: %w", partition, err)
	}
	f := &FoldTimes{}
	f.records, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (r lateRecord, err error) {
		var at *time.Time
		err = row.Scan(&r.to.TransactionID, &r.to.Offset, &at)
		if at != nil {
			r.at = *at
		}
		return r, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the late folds of partition %d: %w", partition, err)
	}
	return f, nil
}

// Of returns when a record was folded, with an error of about a second. Call it for records in
// the order of the log. The time that it returns is never before the time of the last call.
func (f *FoldTimes) Of(r *events.Record) time.Time {
	i, _ := slices.BinarySearchFunc(f.records, r.Position, func(l lateRecord, p events.Position) int {
		if l.to.Before(p) {
			return -1
		}
		return 1
	})
	for _, at := range []time.Time{r.AppendedAt, f.recorded(i)} {
		if at.After(f.latest) {
			f.latest = at
		}
	}
	return f.latest
}

// recorded returns the time of the late-fold record with index i, zero if there is none.
func (f *FoldTimes) recorded(i int) time.Time {
	if i == len(f.records) {
		return time.Time{}
	}
	return f.records[i].at
}
