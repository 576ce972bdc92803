package scenarios

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/measure"
	"github.com/badged/badged/tests/bench/rig"
	"github.com/badged/badged/tests/bench/stream"
	"github.com/badged/badged/tests/bench/ways"
)

// readers is the number of clients that read badges at once.
const readers = 2

// reads measures the rate of badge reads over HTTP while events are folded.
func reads() contest.Scenario {
	const idle, folding = "idle", "folding at half speed"
	return contest.Scenario{
		Name: "reads",
		Says: "badges read over HTTP, one user each, as fast as they come",
		Main: "rate",
		Aims: []contest.Aim{{Measure: "rate", Of: folding, Over: idle, AtLeast: 0.7}},
		Open: func(ctx context.Context, r *rig.Rig, s contest.Scale) (*contest.Contest, error) {
			cfg := stream.Config{
				Users: s.Pick(100_000, 1000), Conversations: 20,
				Reads: 0.1, Repeats: 0.01, Skew: 0.8, Seed: 3,
			}
			server, err := ways.NewRemote(ctx, r, bulk.Workers+readers)
			if err != nil {
				return nil, err
			}
			b := &badgeReads{server: server, stream: stream.New(cfg), users: cfg.Users, duration: s.Duration}
			if err := b.calibrate(ctx); err != nil {
				return nil, errors.Join(err, server.Close(ctx))
			}
			says := fmt.Sprintf("%d connections; %s", readers, cfg)
			return &contest.Contest{
				Sides: []contest.Side{
					{Name: idle, Says: says, Run: func(ctx context.Context) ([]measure.Measure, error) { return b.run(ctx, r, 0) }},
					{Name: folding, Says: fmt.Sprintf("the same, while %.0f events/s are published over HTTP and folded", b.full/2), Run: func(ctx context.Context) ([]measure.Measure, error) {
						return b.run(ctx, r, b.full/2)
					}},
				},
				Close: server.Close,
			}, nil
		},
	}
}

// badgeReads reads the badges of a filled server.
type badgeReads struct {
	server   *ways.Remote
	stream   *stream.Stream
	users    int
	duration time.Duration
	full     float64 // events/s that the server folds without readers
}

// calibrate measures the server's rate, which also gives its users badges.
func (b *badgeReads) calibrate(ctx context.Context) error {
	began := time.Now()
	n, err := bulk.Drive(ctx, b.server, b.stream, b.duration/2)
	b.full = float64(n) / time.Since(began).Seconds()
	return err
}

// run reads badges while events are published at a rate. It also reports how many
// events were published: the publisher falls behind on a busy machine.
func (b *badgeReads) run(ctx context.Context, r *rig.Rig, rate float64) ([]measure.Measure, error) {
	published := 0
	used, err := r.Meter(ctx, func(ctx context.Context) (int, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, b.duration, errEnough)
		defer cancel()
		group, ctx := errgroup.WithContext(ctx)
		if rate > 0 {
			group.Go(func() (err error) {
				published, err = b.publish(ctx, rate)
				return err
			})
		}
		counts := make([]int, readers)
		for i := range counts {
			group.Go(func() error {
				for ctx.Err() == nil {
					user := stream.UserID(rand.Int32N(int32(b.users))) //nolint:gosec // few users; not a secret
					if _, err := b.server.Do(ctx, http.MethodGet, "/v1/users/"+user+"/badge", "", nil, http.StatusOK); err != nil {
						return enough(ctx, err)
					}
					counts[i]++
				}
				return nil
			})
		}
		err := group.Wait()
		total := 0
		for _, n := range counts {
			total += n
		}
		return total, err
	})
	if err != nil {
		return nil, err
	}
	if err := b.server.Settle(ctx); err != nil {
		return nil, err
	}
	all := used.All()
	if rate > 0 {
		all = append(all, measure.Of("published", "events/s", float64(published)/b.duration.Seconds()))
	}
	return all, ways.CheckTotals(ctx, b.server, b.stream)
}

// errEnough ends a run when its time is over.
var errEnough = errors.New("the time is over")

// enough drops an error that the end of the time caused.
func enough(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errEnough) {
		return nil
	}
	return err
}

// publish publishes at a steady rate until ctx is done, and returns the number of
// events. It finishes a request that has begun, so that the number is exact.
func (b *badgeReads) publish(ctx context.Context, rate float64) (published int, err error) {
	const perSecond = 20
	chunk := make([]stream.Event, max(1, int(rate/perSecond)))
	tick := time.NewTicker(time.Second / perSecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return published, nil
		}
		b.stream.Next(chunk)
		if err := b.server.Apply(context.WithoutCancel(ctx), chunk); err != nil {
			return published, err
		}
		published += len(chunk)
	}
}
