package cluster

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/internal/pg/pgfault"
)

// AppendBestEffort appends one stage of [SplitAtJoins] to the databases that can store it. For
// each database that could not store its events, the caller must append them later, before newer
// events. Until a database has stored the events by which users join a room, the caller must not
// append later events of this room to any database.
//
// without is nil or the Partitions of an earlier failure: databases that have one of these
// partitions are skipped. failure marks all partitions of the databases that failed or were
// skipped, except the partitions in without. It is nil if no partition is marked. Some events of
// marked partitions may have been appended; a repeated event counts once.
//
// err is a [*events.BatchError] if events are invalid, and an error of Postgres if Postgres
// refused the content of events. In the second case, some databases may have committed their
// events.
func (a *Appender) AppendBestEffort(ctx context.Context, without []bool, evs ...events.Event) (failure *PartialFailure, err error) {
	if err := events.Check(evs); err != nil { // before any database has stored events
		return nil, err
	}
	call := appendBestEffort{appending: appending{Appender: a}, without: without}
	if call.without == nil {
		call.without = make([]bool, a.cluster.partitions)
	}
	refused, err := call.append(ctx, evs)
	if err == nil && len(refused) > 0 { // partitions have moved
		_ = a.cluster.Reload(ctx) // on failure the last map stays in use
		for _, p := range refused {
			var again []part
			if again, err = call.append(ctx, p.events); err != nil {
				break
			}
			for _, p := range again { // the move is still running
				call.missed(p.on, p.on.Wrap(events.ErrNotHeld))
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
	// state is the state by which the events were last split into parts.
	state *state
}

// missed adds the partitions of a database to failure, since they may lack the events. If s is
// nil, it adds the partitions of all databases that are not configured.
func (c *appendBestEffort) missed(s *Database, why error) {
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

// skips reports whether a database is skipped: one of its partitions is in without or in
// failure.
func (c *appendBestEffort) skips(s *Database) bool {
	for _, p := range c.state.layout.Living() {
		owner := c.state.owners[p]
		p = eventlog.Ancestor(p, c.cluster.partitions)
		if (s == nil && owner < 0 || s != nil && owner == s.index) && (c.without[p] || c.failure != nil && c.failure.Partitions[p]) {
			return true
		}
	}
	return false
}

// append appends events to all databases that are not skipped. It returns the parts that
// databases refused because a partition has moved.
func (c *appendBestEffort) append(ctx context.Context, evs []events.Event) (refused []part, err error) {
	var parts []part
	for before := c.cluster.state.Load(); ; before = c.state {
		parts = c.cluster.split(evs)
		if c.state = c.cluster.state.Load(); c.state == before { // the events were split with this state
			break
		}
	}
	parts = slices.DeleteFunc(parts, func(p part) bool {
		skips := c.skips(p.on)
		if skips {
			c.missed(p.on, nil)
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
			c.missed(p.on, errs[i])
		}
	}
	return refused, err
}
