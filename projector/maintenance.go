package projector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/internal/fold/store"
)

// generationDueSQL returns the present generation of event keys, and whether its span $2 is
// over: a span is half of the dedup window. It compares begun_at with the clock of the
// database, since begun_at is by that clock.
const generationDueSQL = `SELECT max(generation), max(begun_at) + $2::interval <= now() FROM badged.dedup_generations
WHERE partition_id = $1`

// maintain runs the periodic tasks of the owned partitions every MaintenanceInterval. After these
// tasks, and whenever the channel `merges` has a token, it merges event keys. It returns when ctx
// is done.
func (p *Projector) maintain(ctx context.Context) error {
	tick := time.NewTicker(p.cfg.MaintenanceInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.merges:
		case <-tick.C:
			for _, id := range p.OwnedPartitions() {
				p.partition(id).maintain(ctx)
			}
			p.deadLog.flush(time.Now())
			p.leapLog.flush(time.Now())
		}
		p.mergeKeys(ctx)
		p.measureKeys()
	}
}

// maintain runs the periodic tasks of a partition.
func (p *partition) maintain(ctx context.Context) {
	for _, task := range []struct {
		run   func(context.Context) error
		fails string
	}{
		{p.buryUnissued, "cannot look for events with transaction ids from the future, will try again"},
		{p.extendLog, "cannot add a range to the log, so the last range cannot be archived; will try again"},
		{p.rotateGenerations, "cannot begin a generation of event keys, will try again"},
	} {
		if err := task.run(ctx); err != nil && ctx.Err() == nil {
			p.projector.log.WarnContext(ctx, task.fails, "partition", p.id, "error", err)
		}
	}
}

// rotateGenerations checks whether the span of the present generation of event keys is over.
// If so, the next batch begins a new generation. Calls may run concurrently with each other
// and with batches.
func (p *partition) rotateGenerations(ctx context.Context) error {
	var present int
	var due bool
	span := p.projector.cfg.DedupWindow / store.WindowSpans
	if err := p.projector.cfg.Pool.QueryRow(ctx, generationDueSQL, p.id, span).Scan(&present, &due); err != nil {
		return fmt.Errorf("read the age of the present generation of event keys: %w", err)
	}
	if due {
		if err := p.projector.clock.Check(); err != nil { // with a wrong clock, event keys would expire too early
			return err
		}
		p.next.Store(int64(present + 1))
	}
	return nil
}

// mergeKeys merges event keys in the owned partitions until no merge is due. It does one step in
// each partition, then the next step in each, and so on.
func (p *Projector) mergeKeys(ctx context.Context) {
	busy := p.OwnedPartitions()
	for len(busy) > 0 && ctx.Err() == nil {
		busy = slices.DeleteFunc(busy, func(id int) bool {
			more, err := p.partition(id).merger.Step(ctx)
			if err != nil && !errors.Is(err, errNotOwned) && ctx.Err() == nil {
				p.log.WarnContext(ctx, "cannot merge event keys, will try again", "partition", id, "error", err)
			}
			return err != nil || !more
		})
	}
}

// errNotOwned means that this process has no event keys of a partition in memory.
var errNotOwned = errors.New("the partition is not owned, or nothing was folded yet")

// lockKeys calls f while no batch uses the event keys. If the event keys are not in memory, it
// returns errNotOwned without calling f.
func (p *partition) lockKeys(ctx context.Context, f func() error) error {
	if !p.take(ctx) {
		return ctx.Err()
	}
	defer func() { <-p.foldLock }()
	if !p.owned.Load() || !p.keys.Loaded() {
		return errNotOwned
	}
	defer p.keysChanged()
	return f()
}

// keysGrew is called after a batch has added event keys. It wakes maintenance if a merge is
// due.
func (p *partition) keysGrew() {
	p.keysChanged()
	if p.keyStats.Load().Recent >= p.merger.Sizes.Blocks {
		p.projector.wakeMerging()
	}
}

// wakeMerging makes maintain check whether a merge of event keys is due. It does not block.
func (p *Projector) wakeMerging() {
	select {
	case p.merges <- struct{}{}:
	default:
	}
}

// leastCache limits the memory of the event keys in favor of the cache: 1/leastCache of the
// memory of a partition is always available for cached users and rooms.
const leastCache = 4

// keysChanged is called after the event keys have changed: the cache may use the memory that the
// keys do not use.
func (p *partition) keysChanged() {
	stats := p.keys.Stats()
	p.cache.Limit = max(p.memory-stats.Bytes, p.memory/leastCache) / 2
	p.keyStats.Store(&stats)
}

// measureKeys updates the metrics of event keys.
func (p *Projector) measureKeys() {
	m := p.metrics
	for _, of := range []*prometheus.GaugeVec{m.dedupGeneration, m.dedupBlockKeys, m.dedupRunKeys, m.dedupRuns, m.dedupFilterBytes, m.dedupUnfiltered} {
		of.Reset() // some partitions may have a new owner
	}
	for _, id := range p.OwnedPartitions() {
		stats := p.partition(id).keyStats.Load()
		if stats == nil {
			continue
		}
		label := strconv.Itoa(id)
		m.dedupGeneration.WithLabelValues(label).Set(float64(stats.Generation))
		m.dedupBlockKeys.WithLabelValues(label).Set(float64(stats.Recent))
		m.dedupRunKeys.WithLabelValues(label).Set(float64(stats.Merged))
		m.dedupRuns.WithLabelValues(label).Set(float64(stats.Runs))
		m.dedupFilterBytes.WithLabelValues(label).Set(float64(stats.FilterBytes))
		m.dedupUnfiltered.WithLabelValues(label).Set(float64(stats.Unloaded))
	}
}
