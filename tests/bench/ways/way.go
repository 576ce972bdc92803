// Package ways drives events through badged and other common ways to keep unread counts,
// as fast as they go, and compares the totals.
//
// The other ways are written as their proponents would write them. All store applied events for as long
// as badged does, apply each event once, and update a user's total together with the conversation. A
// conversation is its last message and the read position, and the difference is the count. It is right in
// any order of events if messages are numbered without gaps. Unlike badged the other ways store no sets
// of messages, recalls, mentions, categories, levels or versions.
package ways

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
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
	// Totals returns the totals of users.
	Totals(ctx context.Context, users []string) (map[string]int64, error)
	// Close releases everything.
	Close(ctx context.Context) error
}

// keeper is a way that can report the disk space of data that grows with every event.
type keeper interface {
	stored(ctx context.Context) (bytes int64, err error)
}

// StoredMeasure is the name of the measure of this disk space.
const StoredMeasure = "log and keys on disk"

// Driver is the number of workers that apply events, and the number of events that each applies at a
// time.
type Driver struct{ Workers, Batch int }

// String describes the driver.
func (d Driver) String() string {
	if d.Batch == 1 {
		return fmt.Sprintf("%d at a time, one event each", d.Workers)
	}
	return fmt.Sprintf("%d at a time, %d events each", d.Workers, d.Batch)
}

// Drive applies the next events of s to w while more returns true, and returns their number once they
// count. All workers call more before each batch.
func (d Driver) Drive(ctx context.Context, w Way, s *stream.Stream, more func() bool) (events int, err error) {
	var count atomic.Int64
	group, groupCtx := errgroup.WithContext(ctx)
	for range d.Workers {
		group.Go(func() error {
			chunk := make([]stream.Event, d.Batch)
			for more() {
				s.Next(chunk)
				if err := w.Apply(groupCtx, chunk); err != nil {
					return err
				}
				count.Add(int64(len(chunk)))
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	return int(count.Load()), w.Settle(ctx)
}

// Until returns a condition that is true until a time has passed.
func Until(passed time.Duration) func() bool {
	deadline := time.Now().Add(passed)
	return func() bool { return time.Now().Before(deadline) }
}

// Counting makes sides that count events of a stream for a while.
type Counting struct {
	Rig      *rig.Rig
	Stream   stream.Config
	Duration time.Duration
}

// Side returns a side whose rounds begin at the start of the stream with an empty state. Each round checks
// the totals.
func (c Counting) Side(name, says string, d Driver, open func(context.Context) (Way, error)) contest.Side {
	run := func(ctx context.Context) (_ []measure.Measure, err error) {
		w, err := open(ctx)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, w.Close(context.WithoutCancel(ctx))) }()
		s := stream.New(c.Stream)
		used, err := c.Rig.Meter(ctx, func(ctx context.Context) (int, error) { return d.Drive(ctx, w, s, Until(c.Duration)) })
		if err != nil {
			return nil, err
		}
		measures := used.All()
		if k, ok := w.(keeper); ok {
			stored, err := k.stored(ctx)
			if err != nil {
				return nil, err
			}
			measures = append(measures, measure.Of(StoredMeasure, "bytes/event", float64(stored)/used.Events))
		}
		return measures, CheckTotals(ctx, w, s)
	}
	return contest.Side{Name: name, Says: fmt.Sprintf("%s; %s; %s", says, d, c.Stream), Run: run}
}

// Remote returns a side that publishes to the binary over HTTP.
func (c Counting) Remote(name string, d Driver, deploy rig.Deploy) contest.Side {
	return c.Side(name, "the binary over HTTP, NDJSON, "+deploy.String(), d, func(ctx context.Context) (Way, error) {
		return NewRemote(ctx, c.Rig, deploy, d.Workers)
	})
}

// CheckTotals compares the totals of all users with those of the stream.
func CheckTotals(ctx context.Context, w Way, s *stream.Stream) error {
	want := s.Totals()
	users := make([]string, 0, len(want))
	for u := range want {
		users = append(users, u)
	}
	got, err := w.Totals(ctx, users)
	if err != nil {
		return err
	}
	return measure.Check(got, want)
}
