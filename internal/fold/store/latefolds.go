package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/pg/query"
)

// Most events are folded milliseconds after they were appended. A batch may fold later than
// lateFold, because a transaction was open or the projector was behind. Such a batch stores
// its time and its range of positions. Explanations of past badges use these late-fold
// records.

// lateFold is the delay between append and fold beyond which a batch stores a late-fold record,
// which says when its events were folded.
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

// lateRecord covers the events after the previous lateRecord, up to `to`. foldedAt is when they
// were folded; zero means without delay.
type lateRecord struct {
	to       events.Position
	foldedAt time.Time
}

// LoadFoldTimes reads the late-fold records of a partition.
func LoadFoldTimes(ctx context.Context, q events.Querier, partition int) (*FoldTimes, error) {
	f := &FoldTimes{}
	var to events.Position
	var at *time.Time
	what := fmt.Sprintf("read the late folds of partition %d", partition)
	err := query.Each(ctx, q, what, statements.Get("read the late folds"), []any{partition}, []any{&to.TransactionID, &to.Offset, &at}, func() error {
		r := lateRecord{to: to}
		if at != nil {
			r.foldedAt = *at
		}
		f.records = append(f.records, r)
		return nil
	})
	return f, err
}

// FoldedAt returns when a record was folded, with an error of about a second. Call it for records
// in the order of the log. The time that it returns is never before the time of the last call.
func (f *FoldTimes) FoldedAt(r *events.Record) time.Time {
	i, _ := slices.BinarySearchFunc(f.records, r.Position, func(l lateRecord, p events.Position) int {
		if l.to.Before(p) {
			return -1
		}
		return 1
	})
	if r.AppendedAt.After(f.latest) {
		f.latest = r.AppendedAt
	}
	if i < len(f.records) && f.records[i].foldedAt.After(f.latest) {
		f.latest = f.records[i].foldedAt
	}
	return f.latest
}
