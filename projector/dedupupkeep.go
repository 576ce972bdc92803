package projector

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

const (
	createGenerationSQL = `SELECT badged.create_dedup_generation($1)`
	dropGenerationsSQL  = `SELECT badged.drop_dedup_generations($1)`

	// generationDueSQL goes by the clock that wrote begun_at.
	generationDueSQL = `SELECT begun_at + $3::interval <= now() FROM badged.dedup_generations
WHERE partition_id = $1 AND generation = $2`
)

// upkeep looks after the generations of keys, and the ranges of the log, of the
// partitions that are folded here.
func (p *Projector) upkeep(ctx context.Context) error {
	tick := time.NewTicker(p.cfg.UpkeepInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		p.metrics.dedupGeneration.Reset() // partitions may have been given up
		locked := 0
		for _, id := range p.ownedPartitions() {
			if err := p.partitions[id].extendLog(ctx); err != nil && ctx.Err() == nil {
				p.log.WarnContext(ctx, "the log grows in a table that cannot be archived yet, will try again",
					"partition", id, "error", err)
			}
			kept, err := p.partitions[id].keepGenerations(ctx)
			if err != nil {
				if ctx.Err() == nil {
					p.log.WarnContext(ctx, "event keys are remembered for longer than they should, will try again",
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

// kept is how the generations of a partition stand.
type kept struct {
	present int
	// locked are the forgotten ones whose tables others have a lock on.
	locked int
}

// keepGenerations makes the table of the next generation of keys, lets the
// next batch begin it if the present one has had its span, and drops the
// tables of those that are probed no more. It shares nothing with the
// transactions of batches; several at once do no harm.
func (p *partition) keepGenerations(ctx context.Context) (kept, error) {
	pool := p.projector.cfg.Pool
	var next int
	if err := pool.QueryRow(ctx, createGenerationSQL, p.id).Scan(&next); err != nil {
		return kept{}, fmt.Errorf("create the next generation of keys: %w", err)
	}
	var due bool
	span := p.projector.cfg.DedupWindow / windowSpans
	if err := pool.QueryRow(ctx, generationDueSQL, p.id, next-1, span).Scan(&due); err != nil {
		return kept{}, fmt.Errorf("read the age of the present generation of keys: %w", err)
	}
	if due {
		p.next.Store(int64(next))
	}
	k := kept{present: next - 1}
	if err := pool.QueryRow(ctx, dropGenerationsSQL, p.id).Scan(&k.locked); err != nil {
		return kept{}, fmt.Errorf("drop the oldest generations of keys: %w", err)
	}
	return k, nil
}
