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

// Run measures the lag until ctx is done. If a measurement fails, the throttle admits all events
// until a measurement succeeds again. After Run has returned, it also admits all events.
func (th *Throttle) Run(ctx context.Context) error {
	defer th.stop()
	var last time.Time // start of the last measurement
	for {
		began := time.Now()
		if th.waits() || began.Sub(last) >= calmInterval {
			if err := th.measure(ctx); err != nil && ctx.Err() == nil {
				th.cfg.Logger.WarnContext(ctx, "cannot measure the lag; admitting all publishers", "error", err)
			}
			last = time.Now()
		}
		if wait.For(ctx, max(busyInterval, measureShare*time.Since(began))) != nil {
			return nil
		}
	}
}

// waits reports whether the last measurement found unfolded events.
func (th *Throttle) waits() bool {
	th.mu.Lock()
	defer th.mu.Unlock()
	for _, p := range th.partitions {
		if p.lag > 0 {
			return true
		}
	}
	return false
}

func (th *Throttle) measure(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	waiting, err := th.cfg.Waiting(ctx)
	if err != nil {
		th.update(nil, time.Now())
		return fmt.Errorf("backpressure: %w", err)
	}
	th.update(waiting, time.Now())
	return nil
}

// update stores a measurement and wakes the callers of Admit that wait for it. waiting is nil if
// the measurement failed.
func (th *Throttle) update(waiting map[int]lag.Waiting, now time.Time) {
	th.mu.Lock()
	defer th.mu.Unlock()
	var worst time.Duration
	for id, p := range th.partitions {
		if _, ok := waiting[id]; !ok {
			*p = partition{folded: p.folded, moved: p.moved}
		}
	}
	for id, w := range waiting {
		p := th.partitions[id]
		if p == nil {
			p = &partition{}
			th.partitions[id] = p
		}
		if w.Folded != p.folded {
			p.folded, p.moved = w.Folded, now
		}
		p.lag = w.Age
		over := th.cfg.MaxLag > 0 && w.Age > th.cfg.MaxLag
		p.late, p.suspected = over && p.suspected, over
		worst = max(worst, w.Age)
	}
	th.metrics.lag.Set(worst.Seconds())
	close(th.next)
	th.next = make(chan struct{})
}

// stop makes the throttle admit all events permanently.
func (th *Throttle) stop() {
	th.mu.Lock()
	defer th.mu.Unlock()
	th.stopped = true
	close(th.next)
	th.next = make(chan struct{})
}
