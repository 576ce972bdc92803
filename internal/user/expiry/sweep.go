package expiry

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/category"
	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/fold/badge"
	"github.com/badged/badged/internal/fold/lag"
	"github.com/badged/badged/internal/pg/query"
	"github.com/badged/badged/projector/badges"
)

// sweep expires the stale conversations, partition by partition.
func (x *Sweeper) sweep(ctx context.Context, conn *pgx.Conn, now time.Time) error {
	start, expired := time.Now(), 0
	for _, p := range x.partitions() {
		settled, err := x.settled(ctx, conn, p, now)
		if err != nil {
			return err
		}
		after, err := x.limits(ctx, conn, p)
		if err != nil {
			return err
		}
		for _, category := range slices.Sorted(maps.Keys(after)) {
			// Exclude the hour of the limit, since deliveries in this hour may be newer than the
			// limit.
			before := min(badge.HourOf(now.Add(-after[category])), settled)
			n, folds, err := x.sweepCategory(ctx, conn, p, category, before)
			expired += n
			if err != nil {
				return err
			}
			if !folds {
				x.log.WarnContext(ctx, "the projector does not fold expired conversations; the next sweep continues with the partition",
					"partition", p, "waited", x.foldTimeout)
				break
			}
		}
	}
	took := time.Since(start)
	x.cfg.Metrics.sweepSeconds.Observe(took.Seconds())
	x.cfg.Metrics.lastSweep.Set(float64(now.Unix()))
	x.log.InfoContext(ctx, "expiry sweep finished", "expired", expired, "took", took)
	return nil
}

func (x *Sweeper) partitions() []int {
	if x.cfg.Held != nil {
		return x.cfg.Held()
	}
	return x.cfg.Layouts.Layout().Living()
}

// settled returns the hour before which all appended deliveries are folded. But transactions that
// are still open may have appended deliveries before this hour: the batch that folds them later
// resets the progress of the sweep.
func (x *Sweeper) settled(ctx context.Context, conn *pgx.Conn, partition int, now time.Time) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	lags, err := lag.Measure(ctx, conn, []int{partition}, 1)
	if err != nil || len(lags) == 0 { // no lag: another database holds the partition; with hour 0 nothing expires
		return 0, err
	}
	return badge.HourOf(now.Add(-lags[0].Age)), nil
}

// limits returns, for each category of a partition, the time after which conversations expire: see
// Config.After. A category whose conversations never expire is absent.
func (x *Sweeper) limits(ctx context.Context, conn *pgx.Conn, partition int) (map[string]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	categories, err := query.All(ctx, conn, fmt.Sprintf("find categories in partition %d", partition), pgx.RowTo[string], statements.Of(partition, "list the categories"))
	if err != nil {
		return nil, err
	}
	limits := maps.Clone(x.cfg.After)
	delete(limits, OtherCategories)
	for _, of := range categories {
		path := of
		for path != "" && x.cfg.After[path] == 0 {
			path = category.Above(path)
		}
		if path == "" {
			path = OtherCategories
		}
		if after, ok := x.cfg.After[path]; ok {
			limits[of] = after
		}
	}
	return limits, nil
}

// sweepOverlap is how many hours before the stored progress a sweep begins. The last sweep may
// have missed deliveries in these hours that were folded late.
const sweepOverlap = 2

// sweepCategory continues where the last sweep of a category ended. It expires conversations
// whose hour of the last delivery is less than `before`, and returns the number of these
// conversations. folds is false if a batch was not folded within foldTimeout. In this case,
// and after an error, the next sweep reads the same rows again.
func (x *Sweeper) sweepCategory(ctx context.Context, conn *pgx.Conn, partition int, category string, before int64) (expired int, folds bool, err error) {
	swept, err := x.progress(ctx, conn, partition, category)
	if err != nil {
		return 0, true, err
	}
	for _, find := range []string{statements.Of(partition, "find stale conversations"), statements.Of(partition, "find stale memberships")} {
		n, folds, err := x.expire(ctx, conn, partition, category, find, max(0, swept-sweepOverlap), before)
		expired += n
		if err != nil || !folds {
			return expired, folds, err
		}
	}
	if before <= swept {
		return expired, true, nil
	}
	return expired, true, x.advance(ctx, conn, partition, category, swept, before)
}

// progress returns the hour before which earlier sweeps have expired all conversations.
func (x *Sweeper) progress(ctx context.Context, conn *pgx.Conn, partition int, category string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	return query.One[int64](ctx, conn, fmt.Sprintf("read the progress of expiry in partition %d", partition), statements.Get("read the progress"), partition, category)
}

// advance changes the stored progress from `from` to `to`. It does nothing if the stored
// progress is no longer `from`: a transaction that wrote conversations with an old last
// delivery has reset it, and this sweep may not have read these conversations.
func (x *Sweeper) advance(ctx context.Context, conn *pgx.Conn, partition int, category string, from, to int64) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	return query.Exec(ctx, conn, fmt.Sprintf("store the progress of expiry in partition %d", partition), statements.Get("store the progress"), partition, category, from, to)
}

// expire expires, in batches, the conversations of a category that the SQL statement `find`
// returns: unread or marked conversations whose hour of the last delivery is at least `from` and
// less than `before`. It returns the number of these conversations. folds is false if a batch was
// not folded within foldTimeout.
func (x *Sweeper) expire(ctx context.Context, conn *pgx.Conn, partition int, category, find string, from, before int64) (expired int, folds bool, err error) {
	for after := (stale{Hour: from}); ; {
		found, err := x.stale(ctx, conn, partition, category, find, before, after)
		if err != nil {
			return expired, true, err
		}
		for batch := range slices.Chunk(found, x.cfg.BatchSize) {
			if folds, err = x.append(ctx, conn, expiries(batch), x.cfg.Metrics.conversations, len(batch)); err != nil {
				return expired, true, fmt.Errorf("expire %d conversations of partition %d: %w", len(batch), partition, err)
			}
			if expired += len(batch); !folds {
				return expired, false, nil
			}
		}
		if len(found) < x.pageSize {
			return expired, true, nil
		}
		after = found[len(found)-1]
	}
}

// stale is a conversation of a user that is to expire.
type stale struct {
	Hour               int64 // the hour of the last delivery, mark or join
	Conversation, User string
	UpTo               int64 // the last message to mark as read
}

// stale returns the next conversations that the SQL statement `find` finds, at most pageSize.
func (x *Sweeper) stale(ctx context.Context, conn *pgx.Conn, partition int, category, find string, before int64, after stale) ([]stale, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	return query.All(ctx, conn, fmt.Sprintf("find stale conversations of partition %d", partition), pgx.RowToStructByPos[stale],
		find, category, before, after.Hour, after.Conversation, after.User, x.pageSize)
}

// append appends events to the log and adds n to the metric `counted`. Then it waits for at least
// Config.Pause, and until the events are folded, so that a sweep appends no batch before its
// previous batch is folded. It returns false if the events are not folded within foldTimeout. All
// users of the events must belong to one partition.
func (x *Sweeper) append(ctx context.Context, conn *pgx.Conn, evs []events.Event, counted prometheus.Counter, n int) (folds bool, err error) {
	receipt, err := x.cfg.Log.Append(ctx, evs...)
	if err != nil {
		return true, err
	}
	counted.Add(float64(n))
	reader := badges.NewReader(conn, x.cfg.Layouts)
	for start := time.Now(); ; {
		if wait.For(ctx, x.cfg.Pause) != nil {
			return false, ctx.Err()
		}
		queryCtx, cancel := context.WithTimeout(ctx, queryTimeout)
		folded, err := reader.Folded(queryCtx, evs[0].Data.UserIDs[:1], receipt.TransactionID)
		cancel()
		if err != nil || folded || time.Since(start) > x.foldTimeout {
			return folded, err
		}
	}
}
