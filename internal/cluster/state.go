package cluster

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/log/eventlog"
)

// state is the last known placement of partitions. It is immutable.
type state struct {
	placement
	layout *events.Layout
	// owners has the index of each partition's database, -1 if the database is not configured.
	owners []int
	// expected has, at the index of each database, the partitions that the map assigns to the
	// database. It is nil for a single database.
	expected []*eventlog.PlacementSnapshot
	// unknown joins a [*Fault] for each database that the map names but the configuration does
	// not. It is nil if there is no such database.
	unknown error
	// away has the living partitions (not split) that no reachable database holds.
	away []int
	// lost has the partitions that the map assigns to a reachable database although this database
	// does not hold them. The value is the time when a read first showed this.
	lost map[int]time.Time
	// problem is the error of the last merge of the maps, nil if the merge succeeded.
	problem error
	// changed is closed when a newer state is published.
	changed chan struct{}
}

// status is the last known status of a database. It is immutable.
type status struct {
	// err is the reason why the database is unavailable, nil while it can be reached.
	err error
	// held has the partitions that the map assigns to the database and that the database holds, in
	// ascending order. holds is the same set, indexed by partition. While the database is
	// unavailable, held and holds do not change.
	held  []int
	holds []bool
	// present is a context that lasts while the database can be reached: leave cancels it, with err
	// as the cause, when the database becomes unavailable. present and leave are nil while the
	// database is unavailable, and always for a single database.
	present context.Context //nolint:containedctx // not the context of a call
	leave   context.CancelCauseFunc
}

// owner returns the index of the database of a partition, -1 if there is none.
func (st *state) owner(partition int) int {
	if partition < 0 || partition >= len(st.owners) {
		return -1
	}
	return st.owners[partition]
}

// publishOne publishes the state of a single database.
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
	c.databases[0].status.Store(now)
	c.state.Store(next)
	if before != nil {
		close(before.changed)
	}
}

// publish computes the state from a merged map and the last views of the databases, and makes it
// the current state. problem is the error of the last merge.
func (c *Cluster) publish(m placement, problem error) {
	next := &state{placement: m, layout: m.layout(), owners: make([]int, len(m.places)), problem: problem, lost: map[int]time.Time{}, changed: make(chan struct{})}
	before := c.state.Load()
	held := make([]bool, len(m.places))
	same := before != nil && slices.Equal(before.places, m.places)
	for _, s := range c.databases {
		if s.update(m, held) {
			same = false
		}
	}
	for p, place := range m.places {
		next.owners[p] = slices.IndexFunc(c.databases, func(s *Database) bool { return s.Name == place.Database })
		if place.Database == "" || held[p] {
			continue
		}
		next.away = append(next.away, p)
		if owner := next.owners[p]; owner >= 0 && c.databases[owner].last.err == nil {
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
	for _, s := range c.databases {
		s.Log.SetLayout(next.layout)
	}
	if !same && before != nil {
		close(before.changed)
	}
}

// update computes the status of the database from its last view and the map m. It sets held[p]
// for each partition p that the map assigns to the database and that the database holds. It
// reports whether the status has changed.
func (s *Database) update(m placement, held []bool) (changed bool) {
	was := s.status.Load()
	if was == nil {
		was = &status{}
	}
	now := &status{holds: make([]bool, len(m.places)), present: was.present, leave: was.leave}
	if s.last.err != nil {
		now.err = &Fault{Kind: Away, Database: s.Name, Partitions: m.partitionsOf(s.Name), Err: s.last.err}
		now.held, now.present, now.leave = was.held, nil, nil
	} else {
		if now.present == nil {
			now.present, now.leave = context.WithCancelCause(context.Background())
		}
		for _, p := range s.last.held {
			if p < len(m.places) && m.places[p].Database == s.Name {
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

// reachable calls the function do if the database can be reached; else it returns the error of
// [Database.Err]. If the database becomes unavailable while do runs, reachable cancels the context
// of do and returns the reason. It adds the name of the database to all other errors.
func (s *Database) reachable(ctx context.Context, do func(ctx context.Context) error) error {
	st := s.status.Load()
	if st.err != nil {
		return st.err
	}
	if st.present == nil { // a single database
		return do(ctx)
	}
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(st.present, cancel)() //nolint:contextcheck // the context of the database cancels the call too
	err := do(inner)
	if err != nil && inner.Err() != nil && ctx.Err() == nil {
		return context.Cause(st.present) //nolint:contextcheck // why the database is unavailable
	}
	return s.Wrap(err)
}

// holder fails if the users of a partition cannot be read: the database of the partition is not
// configured, is unavailable, or has been without the partition for longer than moveWait.
func (c *Cluster) holder(st *state, partition int) error {
	owner := st.owner(partition)
	if owner < 0 {
		return st.unconfiguredError(partition)
	}
	s := c.databases[owner]
	if err := s.Err(); err != nil {
		return err
	}
	if since := st.lost[partition]; !since.IsZero() && time.Since(since) > moveWait {
		return s.lost()
	}
	return nil
}

// unconfiguredError returns the error for a partition of a database that is not configured.
func (st *state) unconfiguredError(partition int) error {
	name := st.place(partition).Database
	return &Fault{Kind: Unknown, Database: name, Partitions: st.partitionsOf(name), Err: ErrMissing}
}

// unconfigured joins a [*Fault] for each database that the map names but the configuration does
// not. It returns nil if there is no such database.
func (st *state) unconfigured() error {
	var errs []error
	told := map[string]bool{}
	for p, owner := range st.owners {
		if name := st.places[p].Database; owner < 0 && name != "" && !told[name] {
			told[name] = true
			errs = append(errs, st.unconfiguredError(p))
		}
	}
	return errors.Join(errs...)
}

// lost returns a [*Fault] if the database can be reached but does not hold all partitions that
// the map assigns to it.
func (s *Database) lost() error {
	partitions := s.Lost()
	if len(partitions) == 0 {
		return nil
	}
	return &Fault{Kind: Lost, Database: s.Name, Partitions: partitions, Err: ErrLost}
}

// expectations returns the partitions that a map assigns to each database.
func (c *Cluster) expectations(st *state) []*eventlog.PlacementSnapshot {
	held := make([]eventlog.Set, len(c.databases))
	for p, owner := range st.owners {
		if owner >= 0 {
			held[owner].Add(p)
		}
	}
	var all []*eventlog.PlacementSnapshot
	for _, of := range held {
		all = append(all, eventlog.NewPlacementSnapshot(of))
	}
	return all
}
