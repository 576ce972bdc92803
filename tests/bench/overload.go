package main

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

	"github.com/badged/badged/tests/bench/stream"
)

// flood drives publishers that publish as fast as they can.
var flood = driver{workers: 64, batch: 500}

// overload publishes faster than badged can fold.
func overload() scenario {
	return scenario{
		name: "overload",
		says: "64 publishers that wait for nothing: how much of what is acknowledged is folded, and how late",
		main: "folded",
		open: func(_ context.Context, r *rig, s scale) (*contest, error) {
			cfg := stream.Config{
				Users: s.pick(100_000, 1000), Conversations: 20,
				Reads: 0.1, Repeats: 0.01, Skew: 0.8, Seed: 1,
			}
			return contestOf(side{
				name: "badged, HTTP", says: "the binary, NDJSON; " + flood.String(),
				run: func(ctx context.Context) ([]measure, error) { return r.flood(ctx, cfg, s.duration) },
			})
		},
	}
}

// flood publishes for a while as fast as the server answers, waits until all
// acknowledged events are folded, and compares the totals.
func (r *rig) flood(ctx context.Context, cfg stream.Config, duration time.Duration) (_ []measure, err error) {
	d, err := r.deploy(ctx, oneProcess)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.stop(context.WithoutCancel(ctx))) }()
	server := newMeteredAPI(d.api, flood.workers)
	defer server.close()
	p := &patientPublisher{api: server.api}
	s := stream.New(cfg)
	lag := r.watchLag(ctx, server.api)
	began := time.Now()
	group, groupCtx := errgroup.WithContext(ctx)
	for range flood.workers {
		group.Go(func() error {
			chunk := make([]stream.Event, flood.batch)
			for time.Since(began) < duration {
				s.Next(chunk)
				if err := p.publish(groupCtx, chunk); err != nil {
					return err
				}
				server.published.Add(int64(len(chunk)))
			}
			return nil
		})
	}
	err = group.Wait()
	published := time.Since(began).Seconds()
	if err == nil {
		err = server.look(ctx, -1)
	}
	atEnd := server.folded.Load()
	if err == nil {
		err = server.Settle(ctx)
	}
	worst := lag()
	if err != nil {
		return nil, err
	}
	acknowledged := server.published.Load()
	return []measure{
		{"acknowledged", "events/s", float64(acknowledged) / published},
		{"folded", "events/s", float64(atEnd) / published},
		{"backlog", "events", float64(acknowledged - atEnd)},
		{"worst lag", "s", worst},
		{"folded all after", "s", time.Since(began).Seconds() - published},
		{"refused", "requests", float64(p.refused.Load())},
	}, checkTotals(ctx, wayOf{server}, s)
}

// wayOf is a metered server as a way; only its totals are used.
type wayOf struct{ *meteredAPI }

// Apply is not used.
func (wayOf) Apply(context.Context, []stream.Event) error { return errors.ErrUnsupported }

// Close does nothing.
func (wayOf) Close(context.Context) error { return nil }

// watchLag watches the lag of the slowest partition. The returned function ends
// that and returns the maximum.
func (r *rig) watchLag(ctx context.Context, a *api) func() float64 {
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
			page, err := a.do(ctx, http.MethodGet, "/metrics", "", nil, http.StatusOK)
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
	api     *api
	refused atomic.Int64
}

func (p *patientPublisher) publish(ctx context.Context, evs []stream.Event) error {
	var body bytes.Buffer
	for i := range evs {
		b, err := asEvent(evs[i]).MarshalJSON()
		if err != nil {
			return err
		}
		body.Write(b)
		body.WriteByte('\n')
	}
	for {
		_, err := p.api.do(ctx, http.MethodPost, "/v1/events", "application/x-ndjson", body.Bytes(), http.StatusAccepted)
		var status *statusError
		if !errors.As(err, &status) || status.code != http.StatusTooManyRequests {
			return err
		}
		p.refused.Add(1)
		seconds, err := strconv.Atoi(status.retryAfter)
		if err != nil || seconds < 1 {
			return fmt.Errorf("429 with Retry-After %q: %w", status.retryAfter, errWrong)
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
