// Package ways drives events through badged and its rivals as fast as they go, and
// compares the totals.
package ways

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/measure"
	"github.com/badged/badged/tests/bench/rig"
	"github.com/badged/badged/tests/bench/stream"
)

// Way is an implementation of unread counts with its own state, empty at first.
type Way interface {
	// Apply applies events. It is safe for concurrent use.
	Apply(ctx context.Context, events []stream.Event) error
	// Settle returns once all applied events count.
	Settle(ctx context.Context) error
	// Totals returns the totals of users, in their order.
	Totals(ctx context.Context, users []string) ([]int64, error)
	// Close releases everything.
	Close(ctx context.Context) error
}

// keeper is a way that can tell the disk space of what grows with every event.
type keeper interface {
	stored(ctx context.Context) (bytes int64, err error)
}

// keeperOf returns the keeper that w is, or owns.
func keeperOf(w Way) (k keeper, ok bool) {
	if o, is := w.(owned); is {
		w = o.Way
	}
	k, ok = w.(keeper)
	return k, ok
}

// StoredMeasure is that disk space.
const StoredMeasure = "log and keys on disk"

// Driver is the number of workers that apply events, and of events at a time.
type Driver struct{ Workers, Batch int }

// String describes the driver.
func (d Driver) String() string {
	if d.Batch == 1 {
		return fmt.Sprintf("%d at a time, one event each", d.Workers)
	}
	return fmt.Sprintf("%d at a time, %d events each", d.Workers, d.Batch)
}

// Drive applies the next events of s to w for a while and returns their number
// once they count.
func (d Driver) Drive(ctx context.Context, w Way, s *stream.Stream, duration time.Duration) (events int, err error) {
	deadline := time.Now().Add(duration)
	counts := make([]int, d.Workers)
	group, groupCtx := errgroup.WithContext(ctx)
	for i := range counts {
		group.Go(func() error {
			chunk := make([]stream.Event, d.Batch)
			for time.Now().Before(deadline) {
				s.Next(chunk)
				if err := w.Apply(groupCtx, chunk); err != nil {
					return err
				}
				counts[i] += len(chunk)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	for _, n := range counts {
		events += n
	}
	return events, w.Settle(ctx)
}

// Counting is a side that counts events of a stream for a while. Each round starts
// at the start of the stream on an empty state, and its totals are checked.
func Counting(r *rig.Rig, name, says string, open func(context.Context) (Way, error), d Driver, cfg stream.Config, duration time.Duration) contest.Side {
	run := func(ctx context.Context) (_ []measure.Measure, err error) {
		w, err := open(ctx)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, w.Close(context.WithoutCancel(ctx))) }()
		s := stream.New(cfg)
		used, err := r.Meter(ctx, func(ctx context.Context) (int, error) { return d.Drive(ctx, w, s, duration) })
		if err != nil {
			return nil, err
		}
		measures := used.All()
		if k, ok := keeperOf(w); ok {
			stored, err := k.stored(ctx)
			if err != nil {
				return nil, err
			}
			measures = append(measures, measure.Of(StoredMeasure, "bytes/event", float64(stored)/used.Events))
		}
		return measures, CheckTotals(ctx, w, s)
	}
	return contest.Side{Name: name, Says: says + "; " + d.String(), Run: run}
}

// CheckTotals compares the totals of all users with those of the stream.
func CheckTotals(ctx context.Context, w Way, s *stream.Stream) error {
	must := s.Totals()
	users := make([]string, len(must))
	for i := range users {
		users[i] = stream.UserID(int32(i))
	}
	totals, err := w.Totals(ctx, users)
	if err != nil {
		return err
	}
	got, want := make(map[string]int64, len(users)), make(map[string]int64, len(users))
	for i, u := range users {
		got[u], want[u] = totals[i], must[i]
	}
	return measure.Check(got, want)
}
