package shards

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/eventlog"
	"github.com/badged/badged/internal/pgfault"
)

// PartialFailure says which users may lack events because their shards could not append them.
type PartialFailure struct {
	// Partitions marks the partitions whose users may lack events, by [Cluster.Route]:
	// partitions before any was split.
	Partitions []bool
	// Err is the cause; it names the shards.
	Err error
}

// Add returns the union of both. Either may be nil.
func (s *PartialFailure) Add(other *PartialFailure) *PartialFailure {
	switch {
	case s == nil:
		return other
	case other == nil:
		return s
	}
	sum := &PartialFailure{Partitions: slices.Clone(s.Partitions), Err: errors.Join(s.Err, other.Err)}
	for p, lacks := range other.Partitions {
		sum.Partitions[p] = sum.Partitions[p] || lacks
	}
	return sum
}

// AppendBestEffort appends one stage of [SplitAtJoins] to the shards that can store it. The caller
// appends the events to the other shards later, before newer events. If a shard lacks joins of a
// room, the caller appends the events that follow in the room to no shard.
//
// without is nil or the Partitions of an earlier failure: shards with one of these partitions
// get nothing. failure has all partitions of the shards that failed or got nothing, except the
// partitions of without. It is nil if there are none. Some events of these partitions may have
// been appended; repeated events count once.
//
// An error is about the events, a [*events.BatchError] or an error of Postgres: some shards may
// have the events.
func (a *Appender) AppendBestEffort(ctx context.Context, without []bool, evs ...events.Event) (failure *PartialFailure, err error) {
	if err := events.Check(evs); err != nil { // before any shard has some
		return nil, err
	}
	call := appendBestEffort{appending: appending{Appender: a}, without: without}
	if call.without == nil {
		call.without = make([]bool, a.cluster.partitions)
	}
	refused, err := call.append(ctx, evs)
	if err == nil && len(refused) > 0 { // partitions have moved
		_ = a.cluster.Reload(ctx) // if it fails, the last map stays
		for _, p := range refused {
			var again []part
			if again, err = call.append(ctx, p.events); err != nil {
				break
			}
			for _, p := range again { // the move has not ended
				call.lacks(p.shard, p.shard.named(events.ErrNotHeld))
			}
		}
	}
	return call.failure, err
}

// appendBestEffort is a call of AppendBestEffort.
type appendBestEffort struct {
	appending
	without []bool
	failure *PartialFailure
	// state is the one by which the events were split last.
	state *state
}

// lacks records that a shard, nil for one that is not configured, may lack events.
func (c *appendBestEffort) lacks(s *Shard, why error) {
	index := -1
	if s != nil {
		index = s.index
	}
	missing := &PartialFailure{Partitions: make([]bool, c.cluster.partitions), Err: why}
	for _, p := range c.state.layout.Living() {
		if origin := eventlog.Ancestor(p, c.cluster.partitions); c.state.owners[p] == index && !c.without[origin] {
			missing.Partitions[origin] = true
		}
	}
	if slices.Contains(missing.Partitions, true) {
		c.failure = c.failure.Add(missing)
	}
}

// skips reports whether a shard gets nothing.
func (c *appendBestEffort) skips(s *Shard) bool {
	for _, p := range c.state.layout.Living() {
		owner := c.state.owners[p]
		p = eventlog.Ancestor(p, c.cluster.partitions)
		if (s == nil && owner < 0 || s != nil && owner == s.index) && (c.without[p] || c.failure != nil && c.failure.Partitions[p]) {
			return true
		}
	}
	return false
}

// append appends events, and returns the parts that shards refused because a partition has
// moved.
func (c *appendBestEffort) append(ctx context.Context, evs []events.Event) (refused []part, err error) {
	var parts []part
	for before := c.cluster.state.Load(); ; before = c.state {
		parts = c.cluster.split(evs)
		if c.state = c.cluster.state.Load(); c.state == before { // the events were split by it
			break
		}
	}
	parts = slices.DeleteFunc(parts, func(p part) bool {
		skips := c.skips(p.shard)
		if skips {
			c.lacks(p.shard, nil)
		}
		return skips
	})
	errs := make([]error, len(parts))
	var g sync.WaitGroup
	for i, p := range parts {
		g.Go(func() { _, errs[i] = c.one(ctx, p) })
	}
	g.Wait()
	for i, p := range parts {
		switch {
		case errs[i] == nil:
		case errors.Is(errs[i], events.ErrNotHeld):
			refused = append(refused, p)
		case pgfault.OfContent(errs[i]):
			err = errors.Join(err, errs[i])
		default:
			c.lacks(p.shard, errs[i])
		}
	}
	return refused, err
}
