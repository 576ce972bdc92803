package shards

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/eventlog"
)

// state is the last known placement of partitions. It is immutable.
type state struct {
	placement
	layout *events.Layout
	// owners are indexes of shards by partition, -1 for a shard that is not configured.
	owners []int
	// expected has the partitions that the map gives to each shard, by its index; nil for one
	// database by itself.
	expected []*eventlog.Expected
	// unknown is an [*AwayError] for each shard that is not configured, nil if there is none.
	unknown error
	// away are the living partitions that no reachable shard holds.
	away []int
	// lost has, for partitions of reachable shards that do not hold them, since when.
	lost map[int]time.Time
	// problem is why the last maps were not merged.
	problem error
	// changed is closed once a newer state is published.
	changed chan struct{}
}

// status is the last known status of a shard. It is immutable.
type status struct {
	// err is why the shard is away, nil while it can be reached.
	err error
	// held are the partitions that it holds and that the map gives to it, in ascending
	// order, and holds the same by partition. While the shard is away they are the last known.
	held  []int
	holds []bool
	// present is done, with the cause err, once the shard goes away; nil while it is.
	present context.Context //nolint:containedctx // it is not that of a call
	leave   context.CancelCauseFunc
}

// owner returns the index of the shard of a partition, -1 for none.
func (st *state) owner(partition int) int {
	if partition < 0 || partition >= len(st.owners) {
		return -1
	}
	return st.owners[partition]
}

// publishOne publishes the state of a database by itself.
func (c *Cluster) publishOne(layout *events.Layout) {
	before := c.state.Load()
	if before != nil && before.layout.Equal(layout) {
		return
	}
	living := layout.Living()
	next := &state{placement: placement{first: c.partitions}, layout: layout, changed: make(chan struct{})}
	now := &status{held: living}
	for p := range living[len(living)-1] + 1 {
		lives := layout.Lives(p)
		next.places, now.holds = append(next.places, Place{}), append(now.holds, lives)
		if next.owners = append(next.owners, 0); !lives {
			next.owners[p] = -1
		}
	}
	c.shards[0].status.Store(now)
	c.state.Store(next)
	if before != nil {
		close(before.changed)
	}
}

// publish publishes the state of a placement and of the last views of the shards.
func (c *Cluster) publish(m placement, problem error) {
	next := &state{placement: m, layout: m.layout(), owners: make([]int, len(m.places)), problem: problem, lost: map[int]time.Time{}, changed: make(chan struct{})}
	before := c.state.Load()
	held := make([]bool, len(m.places))
	same := before != nil && slices.Equal(before.places, m.places)
	for _, s := range c.shards {
		if s.update(m, held) {
			same = false
		}
	}
	for p, place := range m.places {
		next.owners[p] = slices.IndexFunc(c.shards, func(s *Shard) bool { return s.Name == place.Shard })
		if place.Shard == "" || held[p] {
			continue
		}
		next.away = append(next.away, p)
		if owner := next.owners[p]; owner >= 0 && c.shards[owner].last.err == nil {
			next.lost[p] = time.Now()
			if before != nil && !before.lost[p].IsZero() {
				next.lost[p] = before.lost[p]
			}
		}
	}
	next.unknown = next.unconfigured()
	if before != nil && slices.Equal(before.places, m.places) {
		next.expected = before.expected
	} else {
		next.expected = c.expectations(next)
	}
	if same {
		next.changed = before.changed
	}
	c.state.Store(next)
	for _, s := range c.shards {
		s.log().SetLayout((*eventlog.Layout)(next.layout))
	}
	if !same && before != nil {
		close(before.changed)
	}
}

// update makes a status of the last view of the shard, and records in held the partitions of the
// placement that it holds. It reports whether the status has changed.
func (s *Shard) update(m placement, held []bool) (changed bool) {
	was := s.status.Load()
	if was == nil {
		was = &status{}
	}
	now := &status{holds: make([]bool, len(m.places)), present: was.present, leave: was.leave}
	if s.last.err != nil {
		now.err = &AwayError{Shard: s.Name, Partitions: m.of(s.Name), Err: s.last.err}
		now.held, now.present, now.leave = was.held, nil, nil
	} else {
		if now.present == nil {
			now.present, now.leave = context.WithCancelCause(context.Background())
		}
		for _, p := range s.last.held {
			if p < len(m.places) && m.places[p].Shard == s.Name {
				now.held = append(now.held, p)
				held[p] = true
			}
		}
	}
	for _, p := range now.held {
		now.holds[p] = true
	}
	s.status.Store(now)
	if now.err != nil && was.leave != nil {
		was.leave(now.err)
	}
	return !slices.Equal(was.held, now.held) || (was.err == nil) != (now.err == nil)
}

// reachable calls do, and cancels it once the shard is away: then it returns the error of
// [Shard.Err]. Other errors name the shard.
func (s *Shard) reachable(ctx context.Context, do func(ctx context.Context) error) error {
	st := s.status.Load()
	if st.err != nil {
		return st.err
	}
	if st.present == nil { // one database by itself
		return do(ctx)
	}
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(st.present, cancel)() //nolint:contextcheck // that of the shard ends the call too
	err := do(inner)
	if err != nil && inner.Err() != nil && ctx.Err() == nil {
		return context.Cause(st.present) //nolint:contextcheck // why the shard is away
	}
	return s.named(err)
}

// holder returns why the users of a partition cannot be read, nil if they can: its shard is
// not configured, is away, or has not held the partition for longer than a move takes.
func (c *Cluster) holder(st *state, partition int) error {
	owner := st.owner(partition)
	if owner < 0 {
		return st.lacks(partition)
	}
	s := c.shards[owner]
	if err := s.Err(); err != nil {
		return err
	}
	if since := st.lost[partition]; !since.IsZero() && time.Since(since) > moveWait {
		return s.lost()
	}
	return nil
}

// lacks returns the error for a partition of a shard that is not configured.
func (st *state) lacks(partition int) error {
	name := st.place(partition).Shard
	return &AwayError{Shard: name, Partitions: st.of(name), Err: ErrMissing, Unknown: true}
}

// unconfigured returns the error of shards of the map that are not configured, nil for none.
func (st *state) unconfigured() error {
	var errs []error
	told := map[string]bool{}
	for p, owner := range st.owners {
		if name := st.places[p].Shard; owner < 0 && name != "" && !told[name] {
			told[name] = true
			errs = append(errs, st.lacks(p))
		}
	}
	return errors.Join(errs...)
}

// lost returns an [*AwayError] if the shard can be reached, and does not hold partitions
// that it should.
func (s *Shard) lost() error {
	partitions := s.Lost()
	if len(partitions) == 0 {
		return nil
	}
	return &AwayError{Shard: s.Name, Partitions: partitions, Err: ErrLost, Lost: true}
}

// expectations returns the partitions of each shard by a map.
func (c *Cluster) expectations(st *state) []*eventlog.Expected {
	held := make([]eventlog.Set, len(c.shards))
	for p, owner := range st.owners {
		if owner >= 0 {
			held[owner].Add(p)
		}
	}
	var all []*eventlog.Expected
	for _, of := range held {
		all = append(all, eventlog.NewExpected(of))
	}
	return all
}
