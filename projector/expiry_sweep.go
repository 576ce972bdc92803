package projector

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
)

// sweep expires what is stale now, partition by partition.
func (x *Expiry) sweep(ctx context.Context, conn *pgx.Conn) error {
	start, now, expired := time.Now(), x.cfg.Now(), 0
	for p := range x.cfg.Partitions {
		settled, err := x.settled(ctx, conn, p, now)
		if err != nil {
			return err
		}
		after, err := x.limits(ctx, conn, p)
		if err != nil {
			return err
		}
		for _, category := range slices.Sorted(maps.Keys(after)) {
			// Whatever was delivered in the hour may have been so at its end.
			before := min(hourOf(now.Add(-after[category])), settled)
			n, folds, err := x.sweepCategory(ctx, conn, p, category, before)
			expired += n
			if err != nil {
				return err
			}
			if !folds {
				x.log.WarnContext(ctx, "expired conversations are not folded; the rest of the partition is left to the next sweep",
					"partition", p, "waited", x.foldTimeout)
				break
			}
		}
	}
	took := time.Since(start)
	x.cfg.Metrics.sweepSeconds.Observe(took.Seconds())
	x.cfg.Metrics.lastSweep.Set(float64(now.Unix()))
	x.log.InfoContext(ctx, "expiry sweep", "expired", expired, "took", took)
	return nil
}

// settled returns the hour before which nothing can be delivered any more that
// is not in the tables: events that are not folded, and those of transactions
// that are open, are as old as when they were appended. The transactions come
// first, since what one appends before it ends is then seen among the events.
func (x *Expiry) settled(ctx context.Context, conn *pgx.Conn, partition int, now time.Time) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, expiryQueryTimeout)
	defer cancel()
	writer, _, err := OldestWriter(ctx, conn)
	if err != nil {
		return 0, err
	}
	lags, err := Lags(ctx, conn, []int{partition}, 1)
	if err != nil {
		return 0, err
	}
	return hourOf(now.Add(-max(writer.Age, lags[0].Age))), nil
}

// limits returns after how long conversations of a partition expire, by
// category.
func (x *Expiry) limits(ctx context.Context, conn *pgx.Conn, partition int) (map[string]time.Duration, error) {
	others, ok := x.cfg.After[OtherCategories]
	if !ok {
		return x.cfg.After, nil
	}
	ctx, cancel := context.WithTimeout(ctx, expiryQueryTimeout)
	defer cancel()
	rows, err := conn.Query(ctx, categoriesSQL(partition))
	if err != nil {
		return nil, fmt.Errorf("find categories in partition %d: %w", partition, err)
	}
	categories, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("find categories in partition %d: %w", partition, err)
	}
	limits := make(map[string]time.Duration, len(categories))
	for _, category := range categories {
		limits[category] = others
		if own, ok := x.cfg.After[category]; ok {
			limits[category] = own
		}
	}
	return limits, nil
}

// categoriesSQL steps from one category to the next in the index, however many
// conversations each has.
func categoriesSQL(partition int) string {
	return fmt.Sprintf(`WITH RECURSIVE step AS (
    SELECT min(category) AS category FROM badged.conversations_p%02[1]d
    UNION ALL
    SELECT (SELECT min(category) FROM badged.conversations_p%02[1]d AS c WHERE c.category > step.category)
    FROM step WHERE step.category IS NOT NULL
)
SELECT category FROM step WHERE category IS NOT NULL`, partition)
}

// sweepOverlap is how many hours before its progress a sweep looks at again, for
// what it could not know that it had to wait for.
const sweepOverlap = 2

// sweepCategory goes on from where the last sweep of a category was, expires
// what was delivered before an hour, and returns how many conversations of users
// that were. folds is false where they are not being folded: then, and after an
// error, the next sweep looks at the same again.
func (x *Expiry) sweepCategory(ctx context.Context, conn *pgx.Conn, partition int, category string, before int64) (expired int, folds bool, err error) {
	swept, err := x.progress(ctx, conn, partition, category)
	if err != nil {
		return 0, true, err
	}
	expired, folds, err = x.expire(ctx, conn, partition, category, max(0, swept-sweepOverlap), before)
	if err != nil || !folds || before <= swept {
		return expired, folds, err
	}
	return expired, true, x.advance(ctx, conn, partition, category, swept, before)
}

// progressSQL makes sure that there is a row, which whoever writes conversations
// of the past can take away from under a sweep.
const progressSQL = `WITH first AS (
    INSERT INTO badged.expiry_progress (partition_id, category, swept_hour) VALUES ($1, $2, 0) ON CONFLICT DO NOTHING
)
SELECT coalesce((SELECT swept_hour FROM badged.expiry_progress WHERE partition_id = $1 AND category = $2), 0)`

// progress returns the hour before which sweeps have looked at everything.
func (x *Expiry) progress(ctx context.Context, conn *pgx.Conn, partition int, category string) (swept int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, expiryQueryTimeout)
	defer cancel()
	if err := conn.QueryRow(ctx, progressSQL, partition, category).Scan(&swept); err != nil {
		return 0, fmt.Errorf("read the progress of expiry in partition %d: %w", partition, err)
	}
	return swept, nil
}

// advance moves the progress, unless it is another by now: whoever reset it
// wrote conversations that this sweep may have passed.
func (x *Expiry) advance(ctx context.Context, conn *pgx.Conn, partition int, category string, from, to int64) error {
	ctx, cancel := context.WithTimeout(ctx, expiryQueryTimeout)
	defer cancel()
	if _, err := conn.Exec(ctx, `UPDATE badged.expiry_progress SET swept_hour = $4
WHERE partition_id = $1 AND category = $2 AND swept_hour = $3`, partition, category, from, to); err != nil {
		return fmt.Errorf("keep the progress of expiry in partition %d: %w", partition, err)
	}
	return nil
}

// resetExpirySQL makes the next sweep look at all conversations of a partition
// again. It is for the transaction of whoever writes rows otherwise than by
// folding what comes: they may be behind the progress.
const resetExpirySQL = `DELETE FROM badged.expiry_progress WHERE partition_id = $1`

// expire expires those conversations of a category that have something unread
// and were last delivered to between two hours, the second excluded, batch by
// batch, and returns how many. folds is false where a batch is not being folded.
func (x *Expiry) expire(ctx context.Context, conn *pgx.Conn, partition int, category string, from, before int64) (expired int, folds bool, err error) {
	for after := (stale{hour: from}); ; {
		found, err := x.stale(ctx, conn, partition, category, before, after)
		if err != nil {
			return expired, true, err
		}
		for batch := range slices.Chunk(found, x.cfg.BatchSize) {
			receipt, err := x.cfg.Log.Append(ctx, expiries(batch)...)
			if err != nil {
				return expired, true, fmt.Errorf("expire %d conversations of partition %d: %w", len(batch), partition, err)
			}
			expired += len(batch)
			x.cfg.Metrics.conversations.Add(float64(len(batch)))
			if folds, err := x.awaitFolded(ctx, conn, batch[0].user, receipt); err != nil || !folds {
				return expired, folds, err
			}
		}
		if len(found) < x.pageSize {
			return expired, true, nil
		}
		after = found[len(found)-1]
	}
}

// stale is a conversation of a user that expires.
type stale struct {
	hour               int64 // of the latest delivery
	conversation, user string
	upTo               int64 // the last message delivered
}

// staleSQL pages by the hour, as the index does, and within it by what sorts the
// users of a conversation together. A read position may be ahead of what was
// delivered, and is all that a mark without a message has.
func staleSQL(partition int) string {
	return fmt.Sprintf(`SELECT delivered_hour, conversation_id, user_id, greatest(last_seq, read_seq)
FROM badged.conversations_p%02d
WHERE category = $1 AND delivered_hour < $2 AND (delivered_hour, conversation_id, user_id) > ($3, $4, $5)
  AND (unread > 0 OR marked_unread) AND (last_seq > 0 OR read_seq > 0)
ORDER BY delivered_hour, conversation_id, user_id
LIMIT $6`, partition)
}

// stale returns the next page of conversations that expire, after one of them.
func (x *Expiry) stale(ctx context.Context, conn *pgx.Conn, partition int, category string, before int64, after stale) ([]stale, error) {
	ctx, cancel := context.WithTimeout(ctx, expiryQueryTimeout)
	defer cancel()
	rows, err := conn.Query(ctx, staleSQL(partition), category, before, after.hour, after.conversation, after.user, x.pageSize)
	if err != nil {
		return nil, fmt.Errorf("find stale conversations of partition %d: %w", partition, err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s stale, err error) {
		return s, row.Scan(&s.hour, &s.conversation, &s.user, &s.upTo)
	})
	if err != nil {
		return nil, fmt.Errorf("find stale conversations of partition %d: %w", partition, err)
	}
	return found, nil
}

// awaitFolded waits, for one pause at least, until what was appended for a user
// is folded, and reports whether it is. So a sweep has no more than one batch
// in the log at a time, in front of everything else that is to be folded.
func (x *Expiry) awaitFolded(ctx context.Context, conn *pgx.Conn, user string, receipt events.Receipt) (bool, error) {
	reader := NewReader(conn, x.cfg.Partitions)
	for start := time.Now(); ; {
		if !pause(ctx, x.cfg.Pause) {
			return false, ctx.Err()
		}
		queryCtx, cancel := context.WithTimeout(ctx, expiryQueryTimeout)
		folded, err := reader.Folded(queryCtx, []string{user}, receipt.TransactionID)
		cancel()
		if err != nil || folded || time.Since(start) > x.foldTimeout {
			return folded, err
		}
	}
}
