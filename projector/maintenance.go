package projector

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/badged/badged/projector/internal/store"
)

const (
	createGenerationSQL = `SELECT badged.create_dedup_generation($1)`
	dropGenerationsSQL  = `SELECT badged.drop_dedup_generations($1)`

	// generationDueSQL compares with the clock that wrote begun_at.
	generationDueSQL = `SELECT begun_at + $3::interval <= now() FROM badged.dedup_generations
WHERE partition_id = $1 AND generation = $2`
)

// maintain keeps the key generations and the log ranges of the owned
// partitions.
func (p *Projector) maintain(ctx context.Context) error {
	tick := time.NewTicker(p.cfg.MaintenanceInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		p.metrics.dedupGeneration.Reset() // some partitions may have a new owner
		locked := 0
		for _, id := range p.OwnedPartitions() {
			if err := p.partitions[id].buryUnissued(ctx); err != nil && ctx.Err() == nil {
				p.log.WarnContext(ctx, "cannot look for events with transaction ids from the future, will try again", "partition", id, "error", err)
			}
			if err := p.partitions[id].extendLog(ctx); err != nil && ctx.Err() == nil {
				p.log.WarnContext(ctx, "cannot extend the log, whose last range cannot be archived; will try again",
					"partition", id, "error", err)
			}
			kept, err := p.partitions[id].rotateGenerations(ctx)
			if err != nil {
				if ctx.Err() == nil {
					p.log.WarnContext(ctx, "cannot drop old event keys, will try again",
						"partition", id, "error", err)
				}
				continue
			}
			p.metrics.dedupGeneration.WithLabelValues(strconv.Itoa(id)).Set(float64(kept.present))
			locked += kept.locked
		}
		p.metrics.dedupTablesLocked.Set(float64(locked))
	}
}

// keptGenerations is the state of the key generations of a partition.
type keptGenerations struct {
	present int
	// locked counts the old tables that another session has a lock on.
	locked int
}

// rotateGenerations creates the table of the next generation of keys, lets the
// next batch begin it if the span of the present one is over, and drops the
// tables that are no longer probed. It is safe to run concurrently with batches
// and with itself.
func (p *partition) rotateGenerations(ctx context.Context) (keptGenerations, error) {
	pool := p.projector.cfg.Pool
	var next int
	if err := pool.QueryRow(ctx, createGenerationSQL, p.id).Scan(&next); err != nil {
		return keptGenerations{}, fmt.Errorf("create the next generation of keys: %w", err)
	}
	var due bool
	span := p.projector.cfg.DedupWindow / store.WindowSpans
	if err := pool.QueryRow(ctx, generationDueSQL, p.id, next-1, span).Scan(&due); err != nil {
		return keptGenerations{}, fmt.Errorf("read the age of the present generation of keys: %w", err)
	}
	if due {
		p.next.Store(int64(next))
	}
	k := keptGenerations{present: next - 1}
	if err := pool.QueryRow(ctx, dropGenerationsSQL, p.id).Scan(&k.locked); err != nil {
		return keptGenerations{}, fmt.Errorf("drop the oldest generations of keys: %w", err)
	}
	return k, nil
}
