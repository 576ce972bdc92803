package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
)

// Most events are folded milliseconds after they were appended. If that took
// longer than lateFold, because a transaction was open or the projector was
// behind, the batch records when it folded which events. Explanations of the
// past use it.

// lateFold is the longest delay between append and fold that is not recorded.
const lateFold = time.Second

// recordLateFoldSQL records that a batch of partition $1 folded late the
// events after position $2, $3 up to $4, $5. Batches within a second share a
// record, so there are at most two rows per second: one without a time ends
// the events folded in time before, one ends the late events.
const recordLateFoldSQL = `WITH last AS (
    SELECT number, transaction_id, "offset", since FROM badged.late_folds
    WHERE partition_id = $1::smallint ORDER BY number DESC LIMIT 1
), merged AS (
    UPDATE badged.late_folds AS l
    SET transaction_id = $4::bigint::text::xid8, "offset" = $5, folded_at = clock_timestamp()
    FROM last
    WHERE l.partition_id = $1 AND l.number = last.number AND (last.transaction_id, last."offset") = ($2::bigint::text::xid8, $3::bigint)
      AND l.folded_at IS NOT NULL AND last.since > clock_timestamp() - interval '1 second'
    RETURNING 1
)
INSERT INTO badged.late_folds (partition_id, number, transaction_id, "offset", folded_at)
SELECT $1, coalesce((SELECT number FROM last), 0) + place.n, place.transaction_id::text::xid8, place."offset",
       CASE WHEN place.n = 2 THEN clock_timestamp() END
FROM (VALUES (1, $2::bigint, $3::bigint), (2, $4::bigint, $5::bigint)) AS place (n, transaction_id, "offset")
WHERE NOT EXISTS (SELECT FROM merged)
  AND (place.n = 2 OR NOT EXISTS (SELECT FROM last WHERE (last.transaction_id, last."offset") = ($2::bigint::text::xid8, $3::bigint)))`

// queueLateFold adds the record of b to writes if it is late.
func (b *Batch) queueLateFold(writes *pgx.Batch, partition int) {
	if b.readAt.Sub(b.Oldest) > lateFold {
		writes.Queue(recordLateFoldSQL, partition, b.From.TransactionID, b.From.Offset, b.To.TransactionID, b.To.Offset)
	}
}

// FoldTimes tells when the events of a partition were folded.
type FoldTimes struct {
	records []lateRecord
	latest  time.Time
}

// lateRecord ends a run of events that were all folded at one time, or in
// time if at is zero.
type lateRecord struct {
	to events.Position
	at time.Time
}

// LoadFoldTimes reads the late-fold records of a partition.
func LoadFoldTimes(ctx context.Context, q events.Querier, partition int) (*FoldTimes, error) {
	rows, err := q.Query(ctx, `SELECT transaction_id::text::bigint, "offset", folded_at
FROM badged.late_folds WHERE partition_id = $1 ORDER BY number`, partition)
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

// Of returns when a record was folded, to the second. Calls must follow the
// order of the log, in which that time never goes back.
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

// recorded returns the time of late-fold record i, zero if there is none.
func (f *FoldTimes) recorded(i int) time.Time {
	if i == len(f.records) {
		return time.Time{}
	}
	return f.records[i].at
}
