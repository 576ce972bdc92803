package eventlog

import (
	"context"
	"slices"
)

// PlacementSnapshot is the set of partitions that a database is expected to hold. It is used to
// append a message to a room whose members are in several databases. The caller reads the map of
// partitions once, and passes to each database the partitions that the map assigns to it. The
// database appends the message to exactly these partitions; if it does not hold all of them any
// more, it refuses the message. Without this check, a partition that is moved meanwhile could miss
// the message. A snapshot is immutable.
type PlacementSnapshot struct{ partitions Set }

// NewPlacementSnapshot returns a snapshot of partitions.
func NewPlacementSnapshot(partitions Set) *PlacementSnapshot { return &PlacementSnapshot{partitions} }

// Partitions returns the partitions in ascending order; none if e is nil.
func (e *PlacementSnapshot) Partitions() []int {
	if e == nil {
		return nil
	}
	return slices.Collect(e.partitions.All())
}

// Set returns the partitions. The snapshot must not be nil.
func (e *PlacementSnapshot) Set() Set { return e.partitions }

// Equal reports whether both snapshots have the same partitions. Either may be nil.
func (e *PlacementSnapshot) Equal(other *PlacementSnapshot) bool {
	if e == nil || other == nil {
		return e == other
	}
	return *e == *other
}

// And returns the union of both snapshots. Either may be nil.
func (e *PlacementSnapshot) And(other *PlacementSnapshot) *PlacementSnapshot {
	switch {
	case e == other || other == nil:
		return e
	case e == nil:
		return other
	}
	both := *e
	both.partitions.AddAll(&other.partitions)
	return &both
}

type expectedKey struct{}

// Expect returns a context for appends that require the placement e: a database that does not hold
// these partitions refuses the append. If e is nil, Expect returns ctx.
func Expect(ctx context.Context, e *PlacementSnapshot) context.Context {
	if e == nil {
		return ctx
	}
	return context.WithValue(ctx, expectedKey{}, e)
}

// ExpectedBy returns the placement that appends with this context require; nil if they require
// none.
func ExpectedBy(ctx context.Context) *PlacementSnapshot {
	e, _ := ctx.Value(expectedKey{}).(*PlacementSnapshot)
	return e
}
