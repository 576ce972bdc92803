package backpressure

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/internal/base/metric"
	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/fold/lag"
)

type metrics struct {
	lag         prometheus.Gauge
	refused     prometheus.Counter
	heldSeconds prometheus.Counter
}

func newMetrics(r prometheus.Registerer) metrics {
	return metrics{
		lag:         metric.Gauge(r, "badged_publish_lag_seconds", "Age in seconds of the oldest unfolded event of all partitions, also of partitions that other processes fold. While it is above --max-lag, publishing over HTTP is refused."),
		refused:     metric.Counter(r, "badged_publish_refused_total", "Requests to publish that were answered with 429 because folding was further behind than --max-lag."),
		heldSeconds: metric.Counter(r, "badged_publish_held_seconds_total", "Seconds that requests to publish waited for folding to catch up, in total."),
	}
}

// Run measures the lag until ctx is done. If a measurement fails, the gate admits all events until
// a measurement succeeds again. After Run has returned, the gate also admits all events.
func (g *Gate) Run(ctx context.Context) error {
	defer g.stop()
	var last time.Time // start of the last measurement
	for {
		began := time.Now()
		if g.waits() || began.Sub(last) >= calmInterval {
			if err := g.measure(ctx); err != nil && ctx.Err() == nil {
				g.cfg.Logger.WarnContext(ctx, "cannot measure the lag; admitting all publishers", "error", err)
			}
			last = time.Now()
		}
		if wait.For(ctx, max(busyInterval, measureShare*time.Since(began))) != nil {
			return nil
		}
	}
}

// waits reports whether the last measurement found unfolded events.
func (g *Gate) waits() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.partitions {
		if p.lag > 0 {
			return true
		}
	}
	return false
}

func (g *Gate) measure(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	waiting, err := g.cfg.Waiting(ctx)
	if err != nil {
		g.update(nil, time.Now())
		return fmt.Errorf("backpressure: %w", err)
	}
	g.update(waiting, time.Now())
	return nil
}

// update stores a measurement and wakes the callers of Admit that wait for it. waiting is nil if
// the measurement failed.
func (g *Gate) update(waiting map[int]lag.Waiting, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var worst time.Duration
	for id, p := range g.partitions {
		if _, ok := waiting[id]; !ok {
			*p = partition{folded: p.folded, moved: p.moved}
		}
	}
	for id, w := range waiting {
		p := g.partitions[id]
		if p == nil {
			p = &partition{}
			g.partitions[id] = p
		}
		if w.Folded != p.folded {
			p.folded, p.moved = w.Folded, now
		}
		p.lag = w.Age
		over := g.cfg.MaxLag > 0 && w.Age > g.cfg.MaxLag
		p.late, p.suspected = over && p.suspected, over
		worst = max(worst, w.Age)
	}
	g.metrics.lag.Set(worst.Seconds())
	close(g.next)
	g.next = make(chan struct{})
}

// stop makes the gate admit all events permanently.
func (g *Gate) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stopped = true
	close(g.next)
	g.next = make(chan struct{})
}
