package projector

import (
	"context"
	"slices"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/fold/lag"
	"github.com/badged/badged/internal/pg/query"
)

// poller finds unfolded events for which the projector was not woken: another program appended
// the events, or the wake was lost.
type poller struct {
	projector *Projector
	database  events.Querier
	// partitions are the partitions that the last poll read. snapshot is the Postgres snapshot
	// taken before that poll, "" if it found unfolded events. As long as the snapshot is the same,
	// no transaction has committed after it.
	partitions []int
	snapshot   string
}

// pollPatience limits the duration of a poll: a poll blocks while another session locks the
// log of a partition.
const pollPatience = 2 * time.Second

// poll wakes the partitions that have unfolded events.
func (p *poller) poll(ctx context.Context) {
	behind, err := p.partitionsBehind(ctx)
	if err != nil {
		if ctx.Err() == nil {
			p.projector.log.WarnContext(ctx, "cannot poll for new events, will try again", "error", err)
		}
		behind = p.projector.OwnedPartitions() // one locked partition makes the poll fail, so wake all
	}
	for _, id := range behind {
		p.projector.Wake(id)
	}
}

// partitionsBehind returns the owned partitions with events after their positions. It skips a
// partition if an append has proved, since the last poll, that no other event of the partition is
// unfolded. So while appends fold in all partitions, partitionsBehind runs no query. While no
// transaction commits, it reads only the snapshot.
func (p *poller) partitionsBehind(ctx context.Context) ([]int, error) {
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
	// Take the snapshot before lag.Behind, which may see more.
	snapshot, err := query.One[string](ctx, p.database, "read the snapshot", `SELECT pg_current_snapshot()::text`)
	if err != nil || snapshot == p.snapshot && slices.Equal(partitions, p.partitions) {
		return nil, err
	}
	partitionsBehind, err := lag.Behind(ctx, p.database, partitions)
	if err != nil {
		return nil, err
	}
	if p.partitions, p.snapshot = partitions, snapshot; len(partitionsBehind) > 0 {
		p.snapshot = "" // a batch that a wake causes may still not see the events: look again
	}
	return partitionsBehind, nil
}
