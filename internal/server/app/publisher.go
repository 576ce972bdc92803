package app

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/metric"
	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/projector"
	"github.com/badged/badged/pubsub"
)

// publisher appends events to the log and wakes projectors: at once in this process, and in
// other processes in the background, through the bus.
type publisher struct {
	// appendAll appends events to the databases of their users.
	appendAll events.Append
	// projectors are the projectors of this process.
	projectors []*projector.Projector
	bus        pubsub.Bus
	// remote is true if the bus connects other processes.
	remote bool
	logger *slog.Logger

	appended, failed prometheus.Counter
	seconds          prometheus.Histogram
	// traces is nil without tracing.
	traces *traces

	mu sync.Mutex
	// woken are the partitions with new events that run has not announced on the bus yet.
	woken map[int]struct{}
	wake  chan struct{}
}

func newPublisher(bus pubsub.Bus, r prometheus.Registerer, logger *slog.Logger) *publisher {
	p := &publisher{
		bus: bus, logger: logger,
		appended: metric.Counter(r, "badged_log_events_appended_total", "Events appended to the log by this process."),
		failed:   metric.Counter(r, "badged_log_append_errors_total", "Appends to the log that failed for a reason other than their content."),
		seconds:  metric.Histogram(r, "badged_log_append_seconds", "Seconds that an append took until it was durable.", prometheus.ExponentialBuckets(0.0005, 2, 14)),
		woken:    map[int]struct{}{},
		wake:     make(chan struct{}, 1),
	}
	return p
}

// Append implements httpapi.Appender.
func (p *publisher) Append(ctx context.Context, evs ...events.Event) (events.Receipt, error) {
	if p.traces != nil {
		return p.traces.append(ctx, evs, p.append)
	}
	return p.append(ctx, evs)
}

func (p *publisher) append(ctx context.Context, evs []events.Event) (events.Receipt, error) {
	began := time.Now()
	receipt, err := p.appendAll(ctx, evs...)
	if err != nil {
		var bad *events.BatchError
		if !errors.As(err, &bad) && !errors.Is(err, eventlog.ErrRevoked) && !errors.Is(ctx.Err(), context.Canceled) {
			p.failed.Inc()
		}
		return receipt, err
	}
	p.seconds.Observe(time.Since(began).Seconds())
	p.appended.Add(float64(len(evs)))
	p.wakeAll(receipt.Partitions)
	return receipt, nil
}

// appendedElsewhere counts events that were appended without Append, and wakes their projectors.
func (p *publisher) appendedElsewhere(partitions []int, events int) {
	p.appended.Add(float64(events))
	p.wakeAll(partitions)
}

// wakeAll wakes the projectors of partitions, here and in other processes. It does not block.
func (p *publisher) wakeAll(partitions []int) {
	for _, folding := range p.projectors {
		for _, partition := range partitions {
			folding.Wake(partition)
		}
	}
	if !p.remote {
		return
	}
	p.mu.Lock()
	for _, partition := range partitions {
		p.woken[partition] = struct{}{}
	}
	p.mu.Unlock()
	wait.Wake(p.wake)
}

// run announces partitions with new events on the bus until ctx is done.
func (p *publisher) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
		}
		p.mu.Lock()
		partitions := make([]int, 0, len(p.woken))
		for partition := range p.woken {
			partitions = append(partitions, partition)
		}
		clear(p.woken)
		p.mu.Unlock()
		if err := p.bus.Wake(ctx, partitions); err != nil && ctx.Err() == nil {
			p.logger.DebugContext(ctx, "cannot wake projectors; they poll", "error", err)
		}
	}
}
