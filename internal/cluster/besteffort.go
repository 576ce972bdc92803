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

// AppendBestEffort appends one stage of [SplitAtJoins] to all databases that can store it. If a
// database could not store its events, the caller must append these events again later, before
// newer events. Until a database has stored the events by which users join a room, the caller
// must not append later events of this room to any database.
//
// excluded is nil or the Partitions of an earlier failure: AppendBestEffort skips the databases
// that have one of these partitions. The result failure marks all partitions of the databases that
// failed or were skipped, except the partitions in excluded. It is nil if no partition is marked.
// Some events of the marked partitions may have been appended; a repeated event counts once.
//
// err is a [*events.BatchError] if events are invalid: then no event is appended. If Postgres
// refused the content of events, err is the error of Postgres, and other databases may have
// committed their events.
func (a *Appender) AppendBestEffort(ctx context.Context, excluded []bool, evs ...events.Event) (failure *PartialFailure, err error) {
	if err := events.Check(evs); err != nil { // before any database has stored events
		return nil, err
	}
	call := appendBestEffort{appending: appending{Appender: a}, excluded: excluded}
	if call.excluded == nil {
		call.excluded = make([]bool, a.cluster.partitions)
	}
	refused, err := call.append(ctx, evs)
	if err == nil && len(refused) > 0 { // partitions have moved
		_ = a.cluster.Reload(ctx) // on failure the last map stays in use
		for _, p := range refused {
			var again []part
			if again, err = call.append(ctx, p.events); err != nil {
				break
			}
			for _, p := range again { // the new database refuses the events too, since the move is still running
				call.missed(p.database, p.database.Wrap(events.ErrNotHeld))
			}
		}
	}
	return call.failure, err
}

// appendBestEffort is a call of AppendBestEffort.
type appendBestEffort struct {
	appending
	excluded []bool
	failure  *PartialFailure
	// state has the placement of partitions by which events were last split into parts.
	state *state
}

// missed is called if a database may not have stored the events. It marks the partitions of this
// database in c.failure. If s is nil, it marks the partitions of all databases that are not
// configured.
func (c *appendBestEffort) missed(s *Database, cause error) {
	index := -1
	if s != nil {
		index = s.index
	}
	missing := &PartialFailure{Partitions: make([]bool, c.cluster.partitions), Err: cause}
	for _, p := range c.state.layout.Living() {
		if origin := eventlog.Ancestor(p, c.cluster.partitions); c.state.owners[p] == index && !c.excluded[origin] {
			missing.Partitions[origin] = true
		}
	}
	if slices.Contains(missing.Partitions, true) {
		c.failure = c.failure.Add(missing)
	}
}

// skips reports whether append must skip a database, because one of its partitions is marked in
// excluded or in failure.
func (c *appendBestEffort) skips(s *Database) bool {
	for _, p := range c.state.layout.Living() {
		owner := c.state.owners[p]
		p = eventlog.Ancestor(p, c.cluster.partitions)
		if (s == nil && owner < 0 || s != nil && owner == s.index) && (c.excluded[p] || c.failure != nil && c.failure.Partitions[p]) {
			return true
		}
	}
	return false
}

// append appends events to all databases that are not skipped. refused has the parts that
// databases refused because a partition has moved.
func (c *appendBestEffort) append(ctx context.Context, evs []events.Event) (refused []part, err error) {
	var parts []part
	for before := c.cluster.state.Load(); ; before = c.state {
		parts = c.cluster.split(evs)
		if c.state = c.cluster.state.Load(); c.state == before { // the state has not changed, so the events were split with it
			break
		}
	}
	parts = slices.DeleteFunc(parts, func(p part) bool {
		skips := c.skips(p.database)
		if skips {
			c.missed(p.database, nil)
		}
		return skips
	})
	errs := make([]error, len(parts))
	var g sync.WaitGroup
	for i, p := range parts {
		g.Go(func() { _, errs[i] = c.appendPart(ctx, p) })
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
			c.missed(p.database, errs[i])
		}
	}
	return refused, err
}
