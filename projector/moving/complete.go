package moving

import (
	"context"
	"errors"
	"fmt"

	"github.com/badged/badged/events"
)

// Completed is a move that Complete has ended.
type Completed struct {
	Partition int
	From, To  string
}

// Complete ends the switch of a partition whose mover was stopped between the commits of
// the two shards: the source has released the partition, and the target has all of it but
// does not hold it. It reports whether the target holds it now. It does nothing if the
// partition is in any other state, or if a shard that takes part cannot be reached. Many
// processes may call it at once, also beside the mover.
//
// The old rows stay on the source until the move is run again.
func Complete(ctx context.Context, shards []Shard, partition int) (Completed, bool, error) {
	var sides []*side
	for _, s := range shards {
		one := &side{Shard: s}
		if err := one.look(ctx, s.Pool, partition); err != nil {
			if isAway(err) {
				continue
			}
			return Completed{}, false, err
		}
		if one.holds {
			return Completed{}, false, nil
		}
		sides = append(sides, one)
	}
	for _, to := range sides {
		if to.move.role != targetRole || to.move.state != ready {
			continue
		}
		for _, from := range sides {
			// The source commits that it has released the partition after the target has
			// committed that it is ready, with the same id. An attempt that has failed in
			// between leaves a target that is ready and a source that holds.
			if from.move.role != sourceRole || from.move.state != released || from.move.id != to.move.id || from.cluster != to.cluster {
				continue
			}
			done := Completed{Partition: partition, From: from.Name, To: to.Name}
			err := hold(ctx, to, partition, to.Pool)
			if errors.Is(err, errNotReady) { // another has completed it and cleaned up since
				return done, false, nil
			}
			if err != nil {
				return done, false, fmt.Errorf("complete the move of partition %d from %s to %s: %w", partition, from.Name, to.Name, err)
			}
			return done, true, nil
		}
	}
	return Completed{}, false, nil
}

// errNotReady means that the target has forgotten the move.
var errNotReady = errors.New("the shard has no such move of the partition any more")

// hold makes a target hold the partition that the source has released to it.
func hold(ctx context.Context, to *side, partition int, q events.Querier) error {
	var holds bool
	if err := q.QueryRow(ctx, statements.Get("hold"), partition, to.move.id).Scan(&holds); err != nil {
		return fmt.Errorf("on %s: %w", to.Name, err)
	}
	if !holds {
		return fmt.Errorf("on %s: %w", to.Name, errNotReady)
	}
	return nil
}
