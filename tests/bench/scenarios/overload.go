package scenarios

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/load"
	"github.com/badged/badged/tests/bench/measure"
	"github.com/badged/badged/tests/bench/rig"
	"github.com/badged/badged/tests/bench/stream"
	"github.com/badged/badged/tests/bench/ways"
)

// flood drives publishers that publish as fast as they can.
var flood = ways.Driver{Workers: 64, Batch: 500}

// overload publishes faster than badged can fold.
func overload() contest.Scenario {
	return contest.Scenario{
		Name: "overload",
		Says: "64 publishers that wait for nothing: how much of what is acknowledged is folded, and how late",
		Main: "folded",
		Open: func(_ context.Context, r *rig.Rig, s contest.Scale) (*contest.Contest, error) {
			cfg := stream.Config{
				Users: s.Pick(100_000, 1000), Conversations: 20,
				Reads: 0.1, Repeats: 0.01, Skew: 0.8, Seed: 1,
			}
			return contest.Of(contest.Side{
				Name: "badged, HTTP", Says: "the binary, NDJSON; " + flood.String(),
				Run: func(ctx context.Context) ([]measure.Measure, error) { return floodServer(ctx, r, cfg, s.Duration) },
			})
		},
	}
}

// floodServer publishes for a while as fast as the server answers, waits until all
// acknowledged events are folded, and compares the totals.
func floodServer(ctx context.Context, r *rig.Rig, cfg stream.Config, duration time.Duration) (_ []measure.Measure, err error) {
	d, err := r.Deploy(ctx, rig.OneProcess)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Stop(context.WithoutCancel(ctx))) }()
	server := ways.NewMeteredAPI(d.API, flood.Workers)
	defer server.Close()
	p := &patientPublisher{api: server.API}
	s := stream.New(cfg)
	lag := watchLag(ctx, server.API)
	began := time.Now()
	group, groupCtx := errgroup.WithContext(ctx)
	for range flood.Workers {
		group.Go(func() error {
			chunk := make([]stream.Event, flood.Batch)
			for time.Since(began) < duration {
				s.Next(chunk)
				if err := p.publish(groupCtx, chunk); err != nil {
					return err
				}
				server.Published.Add(int64(len(chunk)))
			}
			return nil
		})
	}
	err = group.Wait()
	published := time.Since(began).Seconds()
	if err == nil {
		err = server.Look(ctx, -1)
	}
	atEnd := server.Folded.Load()
	if err == nil {
		err = server.Settle(ctx)
	}
	worst := lag()
	if err != nil {
		return nil, err
	}
	acknowledged := server.Published.Load()
	return []measure.Measure{
		measure.Of("acknowledged", "events/s", float64(acknowledged)/published),
		measure.Of("folded", "events/s", float64(atEnd)/published),
		measure.Of("backlog", "events", float64(acknowledged-atEnd)),
		measure.Of("worst lag", "s", worst),
		measure.Of("folded all after", "s", time.Since(began).Seconds()-published),
		measure.Of("refused", "requests", float64(p.refused.Load())),
	}, ways.CheckTotals(ctx, wayOf{server}, s)
}

// wayOf is a metered server as a way; only its totals are used.
type wayOf struct{ *ways.MeteredAPI }

// Apply is not used.
func (wayOf) Apply(context.Context, []stream.Event) error { return errors.ErrUnsupported }

// Close does nothing.
func (wayOf) Close(context.Context) error { return nil }

// watchLag watches the lag of the slowest partition. The returned function ends
// that and returns the maximum.
func watchLag(ctx context.Context, a *load.API) func() float64 {
	ctx, stop := context.WithCancel(ctx)
	var worst float64
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			page, err := a.Do(ctx, http.MethodGet, "/metrics", "", nil, http.StatusOK)
			if err != nil {
				continue // the run has ended, or the publishers report the error
			}
			for line := range strings.Lines(string(page)) {
				if rest, ok := strings.CutPrefix(line, "badged_projector_lag_seconds{"); ok {
					_, value, _ := strings.Cut(rest, " ")
					seconds, _ := strconv.ParseFloat(strings.TrimSpace(value), 64)
					worst = max(worst, seconds)
				}
			}
		}
	})
	return func() float64 { stop(); watching.Wait(); return worst }
}

// patientPublisher publishes. If the server refuses because folding is behind, it
// waits as long as Retry-After says.
type patientPublisher struct {
	api     *load.API
	refused atomic.Int64
}

func (p *patientPublisher) publish(ctx context.Context, evs []stream.Event) error {
	var body bytes.Buffer
	for i := range evs {
		b, err := ways.AsEvent(evs[i]).MarshalJSON()
		if err != nil {
			return err
		}
		body.Write(b)
		body.WriteByte('\n')
	}
	for {
		_, err := p.api.Do(ctx, http.MethodPost, "/v1/events", "application/x-ndjson", body.Bytes(), http.StatusAccepted)
		var status *load.StatusError
		if !errors.As(err, &status) || status.Code != http.StatusTooManyRequests {
			return err
		}
		p.refused.Add(1)
		seconds, err := strconv.Atoi(status.RetryAfter)
		if err != nil || seconds < 1 {
			return fmt.Errorf("429 with Retry-After %q: %w", status.RetryAfter, measure.ErrWrong)
		}
		timer := time.NewTimer(time.Duration(seconds)*time.Second + rand.N(time.Second)) //nolint:gosec // spreads load
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}
