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

// Shortfall says that some shards could not append their events, and which users lack them.
type Shortfall struct {
	// Partitions marks the partitions whose users may lack events, by [Cluster.Route]:
	// partitions before any was split.
	Partitions []bool
	// Err is why; it names the shards.
	Err error
}

// Add returns the union of both. Either may be nil.
func (s *Shortfall) Add(other *Shortfall) *Shortfall {
	switch {
	case s == nil:
		return other
	case other == nil:
		return s
	}
	sum := &Shortfall{Partitions: slices.Clone(s.Partitions), Err: errors.Join(s.Err, other.Err)}
	for p, lacks := range other.Partitions {
		sum.Partitions[p] = sum.Partitions[p] || lacks
	}
	return sum
}

// AppendSome appends one of the [Stages] to the shards that can take it, for callers that give
// the others theirs later: first what a shard lacks, then newer events. If a shard lacks joins
// of a room, the caller keeps what follows in the room from all.
// Shards with a partition of without, the Partitions of a former Shortfall or nil, get
// nothing.
//
// It tells by shard what was appended: shortfall has all partitions of the shards that
// failed or that have a partition of without, except for those of without themselves. It is
// nil if there are none. Some events that it covers may have been appended; repeated events
// count once.
//
// An error is about the events, a [*events.BatchError] or one of Postgres: some shards may
// have them then.
func (a *Appender) AppendSome(ctx context.Context, without []bool, evs ...events.Event) (shortfall *Shortfall, err error) {
	if err := events.Check(evs); err != nil { // before any shard has some
		return nil, err
	}
	call := some{appending: appending{Appender: a}, without: without}
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
			for _, p := range again { // the shards are in the middle of a move
				call.lacks(p.shard, p.shard.named(events.ErrNotHeld))
			}
		}
	}
	return call.shortfall, err
}

// some is a call of AppendSome.
type some struct {
	appending
	without   []bool
	shortfall *Shortfall
	// state is that by which the events were split last.
	state *state
}

// lacks notes that a shard, nil for one that is not configured, may lack events.
func (c *some) lacks(s *Shard, why error) {
	index := -1
	if s != nil {
		index = s.index
	}
	missing := &Shortfall{Partitions: make([]bool, c.cluster.partitions), Err: why}
	for _, p := range c.state.layout.Living() {
		if origin := eventlog.Ancestor(p, c.cluster.partitions); c.state.owners[p] == index && !c.without[origin] {
			missing.Partitions[origin] = true
		}
	}
	if slices.Contains(missing.Partitions, true) {
		c.shortfall = c.shortfall.Add(missing)
	}
}

// skips reports whether a shard gets nothing.
func (c *some) skips(s *Shard) bool {
	for _, p := range c.state.layout.Living() {
		owner := c.state.owners[p]
		p = eventlog.Ancestor(p, c.cluster.partitions)
		if (s == nil && owner < 0 || s != nil && owner == s.index) && (c.without[p] || c.shortfall != nil && c.shortfall.Partitions[p]) {
			return true
		}
	}
	return false
}

// append appends events, and returns the parts that shards refused since a partition has
// moved.
func (c *some) append(ctx context.Context, evs []events.Event) (refused []part, err error) {
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
