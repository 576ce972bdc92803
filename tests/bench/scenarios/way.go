package scenarios

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/rig"
	"github.com/badged/badged/tests/bench/stream"
)

// way is an implementation of unread counts with its own state, empty at first. It ends with the
// run that opened it.
//
// The other ways are written as their proponents would write them. All store applied events for as long
// as badged does, apply each event once, and update a user's total together with the conversation. A
// conversation is its last message and the read position, and the difference is the count. It is right in
// any order of events if messages are numbered without gaps. Unlike badged the other ways store no sets
// of messages, recalls, mentions, categories, levels or versions.
type way interface {
	// Apply applies events. It is safe for concurrent use.
	Apply(ctx context.Context, events []stream.Event) error
	// Settle returns once all applied events count.
	Settle(ctx context.Context) error
	// Totals returns the totals of users.
	Totals(ctx context.Context, users []string) (map[string]int64, error)
}

// storedMeasure is the disk space of data that grows with every event.
const storedMeasure = "log and keys on disk"

// driver is the number of workers that apply events, and the number of events that each applies at a
// time.
type driver struct{ workers, batch int }

var (
	// bulk publishes in batches, as a chat backend does in bulk.
	bulk = driver{workers: 4, batch: 1000}
	// oneAtATime is how single events are applied.
	oneAtATime = driver{workers: 64, batch: 1}
)

// String describes the driver.
func (d driver) String() string {
	if d.batch == 1 {
		return fmt.Sprintf("%d at a time, one event each", d.workers)
	}
	return fmt.Sprintf("%d at a time, %d events each", d.workers, d.batch)
}

// drive applies the next events of s to w while more returns true, and returns their number once they
// count. All workers call more before each batch.
func (d driver) drive(ctx context.Context, w way, s *stream.Stream, more func() bool) (events int, err error) {
	var count atomic.Int64
	group, groupCtx := errgroup.WithContext(ctx)
	for range d.workers {
		group.Go(func() error {
			chunk := make([]stream.Event, d.batch)
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

// counting makes sides that count events of a stream for a while.
type counting struct {
	rig      *rig.Rig
	stream   stream.Config
	duration time.Duration
}

// side returns a side whose rounds begin at the start of the stream with an empty state. Each round checks
// the totals.
func (c counting) side(name, says string, d driver, open func(*contest.Run) way) contest.Side {
	return contest.Side{Name: name, Says: fmt.Sprintf("%s; %s; %s", says, d, c.stream), Run: func(run *contest.Run) []contest.Measure {
		w, s := open(run), stream.New(c.stream)
		var events int
		used := c.rig.Meter(run, func() int {
			deadline := time.Now().Add(c.duration)
			events = contest.Must(d.drive(run.Context(), w, s, func() bool { return time.Now().Before(deadline) }))
			return events
		})
		measures := used.All()
		if e, ok := w.(*embedded); ok {
			measures = append(measures, contest.Of(storedMeasure, "bytes/event", float64(e.stored(run))/float64(events)))
		}
		contest.Check(checkTotals(run.Context(), w, s))
		return measures
	}}
}

// remote returns a side that publishes to the binary over HTTP.
func (c counting) remote(name string, d driver, deploy rig.Deploy) contest.Side {
	return c.side(name, "the binary over HTTP, NDJSON, "+deploy.String(), d, func(run *contest.Run) way {
		return newRemote(run, c.rig.Deploy(run, deploy).API.URL, d.workers)
	})
}

// checkTotals compares the totals of all users with those of the stream.
func checkTotals(ctx context.Context, w way, s *stream.Stream) error {
	want := s.Totals()
	got, err := w.Totals(ctx, slices.Collect(maps.Keys(want)))
	if err != nil {
		return err
	}
	return contest.CheckTotals(got, want)
}
