package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/badged/badged/tests/bench/stream"
)

// way is an implementation of unread counts with its own state, empty at first.
type way interface {
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
func keeperOf(w way) (k keeper, ok bool) {
	if o, is := w.(owned); is {
		w = o.way
	}
	k, ok = w.(keeper)
	return k, ok
}

// storedMeasure is that disk space.
const storedMeasure = "log and keys on disk"

// driver is the number of workers that apply events, and of events at a time.
type driver struct{ workers, batch int }

// String describes the driver.
func (d driver) String() string {
	if d.batch == 1 {
		return fmt.Sprintf("%d at a time, one event each", d.workers)
	}
	return fmt.Sprintf("%d at a time, %d events each", d.workers, d.batch)
}

// drive applies the next events of s to w for a while and returns their number
// once they count.
func (d driver) drive(ctx context.Context, w way, s *stream.Stream, duration time.Duration) (events int, err error) {
	deadline := time.Now().Add(duration)
	counts := make([]int, d.workers)
	group, groupCtx := errgroup.WithContext(ctx)
	for i := range counts {
		group.Go(func() error {
			chunk := make([]stream.Event, d.batch)
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

// counting is a side that counts events of a stream for a while. Each round starts
// at the start of the stream on an empty state, and its totals are checked.
func (r *rig) counting(name, says string, open func(context.Context) (way, error), d driver, cfg stream.Config, duration time.Duration) side {
	run := func(ctx context.Context) (_ []measure, err error) {
		w, err := open(ctx)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, w.Close(context.WithoutCancel(ctx))) }()
		s := stream.New(cfg)
		used, err := r.meter(ctx, func(ctx context.Context) (int, error) { return d.drive(ctx, w, s, duration) })
		if err != nil {
			return nil, err
		}
		measures := used.all()
		if k, ok := keeperOf(w); ok {
			stored, err := k.stored(ctx)
			if err != nil {
				return nil, err
			}
			measures = append(measures, measure{storedMeasure, "bytes/event", float64(stored) / used.events})
		}
		return measures, checkTotals(ctx, w, s)
	}
	return side{name: name, says: says + "; " + d.String(), run: run}
}

// checkTotals compares the totals of all users with those of the stream.
func checkTotals(ctx context.Context, w way, s *stream.Stream) error {
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
	return check(got, want)
}
