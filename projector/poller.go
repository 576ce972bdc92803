package projector

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/lag"
)

// poller finds events that came without a wake: those that other programs
// appended, and those whose wake was lost.
type poller struct {
	projector *Projector
	database  events.Querier
	// partitions are those of the last poll, and snapshot is that of Postgres
	// before it. As long as the snapshot is the same, nothing has been committed.
	partitions []int
	snapshot   string
}

// pollPatience bounds a poll, which waits if something locks the log of one partition.
const pollPatience = 2 * time.Second

// poll wakes the partitions that are behind.
func (p *poller) poll(ctx context.Context) {
	behind, err := p.behind(ctx)
	if err != nil {
		if ctx.Err() == nil {
			p.projector.log.WarnContext(ctx, "cannot poll for new events, will try again", "error", err)
		}
		behind = p.projector.OwnedPartitions() // one of which may be locked
	}
	for _, id := range behind {
		p.projector.Wake(id)
	}
}

// behind returns the owned partitions with events after their positions. It
// leaves out those that an append has looked at since the last poll: the next
// poll includes them. So it queries nothing while appends reach all partitions,
// and only the snapshot while nothing is committed.
func (p *poller) behind(ctx context.Context) ([]int, error) {
	ctx, cancel := context.WithTimeout(ctx, pollPatience)
	defer cancel()
	partitions := make([]int, 0, len(p.projector.partitions))
	for _, id := range p.projector.OwnedPartitions() {
		if !p.projector.partition(id).looked.Swap(false) {
			partitions = append(partitions, id)
		}
	}
	if len(partitions) == 0 {
		p.partitions = nil
		return nil, nil
	}
	var snapshot string // before the look, which may see more
	if err := p.database.QueryRow(ctx, `SELECT pg_current_snapshot()::text`).Scan(&snapshot); err != nil {
		return nil, fmt.Errorf("read the snapshot: %w", err)
	}
	if snapshot == p.snapshot && slices.Equal(partitions, p.partitions) {
		return nil, nil
	}
	behind, err := lag.Behind(ctx, p.database, partitions)
	if err != nil {
		return nil, err
	}
	p.partitions, p.snapshot = partitions, snapshot
	return behind, nil
}
