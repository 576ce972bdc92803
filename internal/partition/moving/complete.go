package moving

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/pg/query"
)

// Completed describes a move that Complete has completed.
type Completed struct {
	Partition int
	From, To  string
}

// Complete completes the switch of a partition after the mover stopped between the commits of
// the two databases: the source has released the partition, and the target has all rows but does
// not hold the partition. Complete returns true after the target holds the partition. It returns
// false, and changes nothing, if the partition is in any other state, or if the source or the
// target cannot be reached. It fails with ErrTargetLost if the target has lost rows since the
// release. Several processes and the mover may call it at the same time.
//
// The source stores the old rows until the move is run again.
func Complete(ctx context.Context, databases []Database, partition int) (Completed, bool, error) {
	var sides []*side
	for _, s := range databases {
		one := &side{Database: s}
		if err := one.readState(ctx, s.Pool, partition); err != nil {
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
				continue // not this pair, or a later revision of the map assigns the partition to another database
			}
			if !to.has(from.move) {
				return Completed{}, false, lostBy(to, from, partition)
			}
			done := Completed{Partition: partition, From: from.Name, To: to.Name}
			err := hold(ctx, to, partition, to.Pool)
			if errors.Is(err, errNotReady) { // another process has completed the move and cleaned up
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

// hasReleased reports whether the database s has released the partition to the database `to` and
// still has the old rows.
func (s *side) hasReleased(to *side) bool {
	return !s.holds && s.move.role == sourceRole && s.move.state == released && s.move.target == to.Name && s.cluster == to.cluster
}

// has reports whether the target s of a move has all rows of the partition. `released` is the
// record of the move on the source. In the last round the target commits the state ready with a
// random round id, and then the source commits the state released with the same id. If the target
// has lost its commit, such as after a restore, the two ids differ.
func (s *side) has(released move) bool {
	return s.move.role == targetRole && (s.move.state == ready || s.move.state == held) && s.move.id == released.id && s.move.round == released.round
}

// ErrTargetLost means that the target has lost rows of the partition after the source released
// it.
var ErrTargetLost = errors.New("the target does not have all of the partition")

// lostBy returns the error of a move whose target has lost rows of the partition.
func lostBy(to, from *side, partition int) error {
	return fmt.Errorf("%w: %s has released partition %d to %s, which was restored to a time before the switch, or lost the switch in a failover: restore it to a later time; if that is impossible, `badged partition move %[3]d --undo` makes %[2]s serve the partition in its state before the switch, without the events that %[4]s accepted since",
		ErrTargetLost, from.Name, partition, to.Name)
}

// errNotReady means that the target has no record of the move with this round id.
var errNotReady = errors.New("the database no longer has this move of the partition")

// hold makes the target hold the partition that the source has released.
func hold(ctx context.Context, to *side, partition int, q events.Querier) error {
	holds, err := query.One[bool](ctx, q, "on "+to.Name, statements.Get("hold"), partition, to.move.id, to.move.round)
	if err == nil && !holds {
		err = fmt.Errorf("on %s: %w", to.Name, errNotReady)
	}
	return err
}
