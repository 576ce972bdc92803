package eventlog

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/badged/badged/internal/pgwire"
)

// Expected are the partitions that a call takes one of several databases to hold, by the
// map with which it went to all of them. A message to a room goes to the partitions that
// each database holds of it. If one of the map has left its database, while the database
// that gets it did not have it yet, the message would be in neither. So a database refuses
// the messages of a call that expects a partition which it does not hold, if the call has
// not heard of a move or a split, or if the partition has the room. It does not change.
type Expected struct {
	revisions map[int]int64
	// partitions and revisions as literals of arrays.
	partitions, revisionsOf string
}

// NewExpected returns partitions with the revisions of the map.
func NewExpected(revisions map[int]int64) *Expected {
	e := &Expected{revisions: revisions}
	var partitions, revisionsOf []string
	for _, p := range slices.Sorted(maps.Keys(revisions)) {
		partitions, revisionsOf = append(partitions, fmt.Sprint(p)), append(revisionsOf, fmt.Sprint(revisions[p]))
	}
	e.partitions, e.revisionsOf = pgwire.ArrayLiteral(partitions), pgwire.ArrayLiteral(revisionsOf)
	return e
}

// Partitions returns the partitions in ascending order, none for nil.
func (e *Expected) Partitions() []int {
	if e == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(e.revisions))
}

// Equal reports whether both expect the same. Either may be nil.
func (e *Expected) Equal(other *Expected) bool {
	if e == nil || other == nil {
		return e == other
	}
	return maps.Equal(e.revisions, other.revisions)
}

// And returns what calls expect together. Either may be nil.
func (e *Expected) And(other *Expected) *Expected {
	switch {
	case e == other || other == nil:
		return e
	case e == nil:
		return other
	}
	both := maps.Clone(e.revisions)
	for p, revision := range other.revisions {
		if mine, ok := both[p]; !ok || revision < mine {
			both[p] = revision
		}
	}
	return NewExpected(both)
}

type expectedKey struct{}

// Expect returns a context for appends that expect partitions; nil changes nothing.
func Expect(ctx context.Context, e *Expected) context.Context {
	if e == nil {
		return ctx
	}
	return context.WithValue(ctx, expectedKey{}, e)
}

// ExpectedBy returns what the appends of a context expect, nil for nothing.
func ExpectedBy(ctx context.Context) *Expected {
	e, _ := ctx.Value(expectedKey{}).(*Expected)
	return e
}

// notExpectedSQL finds partitions that a call expects, and that make the database refuse
// its messages to the rooms $1. The partitions are $EXPECTED, with revisions $REVISIONS.
// The rows of a partition are in the directory before the database gets it, and until they
// are deleted after it has left.
const notExpectedSQL = `SELECT FROM unnest($EXPECTED::smallint[], $REVISIONS::bigint[]) AS expected (partition_id, revision)
WHERE NOT EXISTS (SELECT FROM badged.partitions AS held WHERE held.partition_id = expected.partition_id)
  AND (EXISTS (SELECT FROM badged.shard_partitions AS m WHERE m.partition_id = expected.partition_id AND m.revision > expected.revision)
    OR EXISTS (SELECT FROM badged.room_partitions AS r WHERE r.partition_id = expected.partition_id AND r.conversation_id = ANY ($1::text[])))`
