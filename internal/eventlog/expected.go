package eventlog

import (
	"context"
	"slices"
)

// Expected are the partitions that a call takes one of several databases to hold, by the
// map with which it went to all of them. They get its messages to rooms, and refuse them if
// the database does not hold them any more: if it took those that it holds by then, a
// message could miss a partition that moves meanwhile. It does not change.
type Expected struct{ partitions Set }

// NewExpected returns what a call expects.
func NewExpected(partitions Set) *Expected { return &Expected{partitions} }

// Partitions returns the partitions in ascending order, none for nil.
func (e *Expected) Partitions() []int {
	if e == nil {
		return nil
	}
	return slices.Collect(e.partitions.All())
}

// Equal reports whether both expect the same. Either may be nil.
func (e *Expected) Equal(other *Expected) bool {
	if e == nil || other == nil {
		return e == other
	}
	return *e == *other
}

// And returns what calls expect together. Either may be nil.
func (e *Expected) And(other *Expected) *Expected {
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
