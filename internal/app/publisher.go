package app

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector"
	"github.com/badged/badged/pubsub"
)

// publisher appends events to the log and wakes projectors: the one in this
// process at once, those of other processes through the bus in the background.
type publisher struct {
	log *events.Log
	// group combines small appends.
	group     *events.Group
	projector *projector.Projector // nil if only other processes fold
	bus       pubsub.Bus
	// remote is whether the bus reaches other processes.
	remote bool
	logger *slog.Logger

	// written is called after each append.
	written func()

	appended, failed prometheus.Counter
	seconds          prometheus.Histogram
	// traces is nil without tracing.
	traces *traces

	mu sync.Mutex
	// woken are the partitions still to be announced on the bus.
	woken map[int]struct{}
	wake  chan struct{}
}

func newPublisher(log *events.Log, bus pubsub.Bus, r prometheus.Registerer, logger *slog.Logger) *publisher {
	auto := promauto.With(r)
	p := &publisher{
		log: log, bus: bus, logger: logger,
		appended: auto.NewCounter(prometheus.CounterOpts{
			Namespace: "badged", Subsystem: "log", Name: "events_appended_total",
			Help: "Events appended to the log by this process.",
		}),
		failed: auto.NewCounter(prometheus.CounterOpts{
			Namespace: "badged", Subsystem: "log", Name: "append_errors_total",
			Help: "Appends to the log that failed for reasons other than their content.",
		}),
		seconds: auto.NewHistogram(prometheus.HistogramOpts{
			Namespace: "badged", Subsystem: "log", Name: "append_seconds",
			Help: "Seconds until an append was durable.", Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
		written: func() {},
		woken:   map[int]struct{}{},
		wake:    make(chan struct{}, 1),
	}
	p.group = events.NewGroup(log, p.commit, projector.DefaultConcurrency())
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
	receipt, err := p.group.Append(ctx, evs...)
	if err != nil {
		var bad *events.BatchError
		if !errors.As(err, &bad) && !errors.Is(ctx.Err(), context.Canceled) {
			p.failed.Inc()
		}
		return receipt, err
	}
	p.written()
	p.seconds.Observe(time.Since(began).Seconds())
	p.appended.Add(float64(len(evs)))
	p.wakeAll(receipt.Partitions)
	return receipt, nil
}

// appendedElsewhere is called after events were appended to partitions by other means.
func (p *publisher) appendedElsewhere(partitions []int, events int) {
	p.written()
	p.appended.Add(float64(events))
	p.wakeAll(partitions)
}

// commit appends events in one transaction, which folds them too where the
// projector of this process can.
func (p *publisher) commit(ctx context.Context, evs ...events.Event) (events.Receipt, error) {
	if p.projector != nil {
		return p.projector.Append(ctx, evs...)
	}
	return p.log.Append(ctx, evs...)
}

// wakeAll wakes the projectors of partitions. It does not block.
func (p *publisher) wakeAll(partitions []int) {
	if p.projector != nil {
		for _, partition := range partitions {
			p.projector.Wake(partition)
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
	select {
	case p.wake <- struct{}{}:
	default:
	}
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
