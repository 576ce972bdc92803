package moving

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/badged/badged/events"
)

// Completed is a move that Complete has ended.
type Completed struct {
	Partition int
	From, To  string
}

// Complete ends the switch of a partition whose mover was stopped between the commits of
// the two shards: the source has released the partition, and the target has all of it but
// does not hold it. It reports whether the target holds it now. It fails if the target has
// lost some of it since. It does nothing if the partition is in any other state, or if a
// shard that takes part cannot be reached. Many processes may call it at once, also beside
// the mover.
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
	for _, from := range sides {
		for _, to := range sides {
			if !from.hasReleased(to) || slices.ContainsFunc(sides, func(s *side) bool { return s.revision > from.move.revision }) {
				continue // or it has moved on since
			}
			if !to.has(from.move) {
				return Completed{}, false, lostBy(to, from, partition)
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

// hasReleased reports whether a shard has released the partition to another, and still has
// its rows.
func (s *side) hasReleased(to *side) bool {
	return !s.holds && s.move.role == sourceRole && s.move.state == released && s.move.target == to.Name && s.cluster == to.cluster
}

// has reports whether the target of a move has all of the partition: the target commits that it is
// ready before the source commits, in the same round, that it has released the partition. After a
// failed attempt the target is ready in another round.
func (s *side) has(released move) bool {
	return s.move.role == targetRole && (s.move.state == ready || s.move.state == held) && s.move.id == released.id && s.move.round == released.round
}

// ErrTargetLost means that the source has released the partition, and that the target has
// lost some of it since.
var ErrTargetLost = errors.New("the target does not have all of the partition")

// lostBy returns the error of a move whose target has lost rows of the partition.
func lostBy(to, from *side, partition int) error {
	return fmt.Errorf("%w: %s has released partition %d to %s, which was restored from before the switch, or lost the switch in a failover: restore it to a later time; if that cannot be, `badged partition move %[3]d --undo` makes %[2]s serve it as it was before the switch, without what %[4]s took since",
		ErrTargetLost, from.Name, partition, to.Name)
}

// errNotReady means that the target has forgotten the move.
var errNotReady = errors.New("the shard has no such move of the partition any more")

// hold makes the target hold the partition that the source has released.
func hold(ctx context.Context, to *side, partition int, q events.Querier) error {
	var holds bool
	if err := q.QueryRow(ctx, statements.Get("hold"), partition, to.move.id, to.move.round).Scan(&holds); err != nil {
		return fmt.Errorf("on %s: %w", to.Name, err)
	}
	if !holds {
		return fmt.Errorf("on %s: %w", to.Name, errNotReady)
	}
	return nil
}
