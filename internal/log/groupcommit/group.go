// Package groupcommit appends several small calls in one transaction if they arrive at about
// the same time.
//
// It does not know how events are appended: its users pass it a function. ADR 54 has the
// reasons.
package groupcommit

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/log/eventlog"
)

// Group appends events to a log. Small appends that arrive while other appends run share a
// transaction, since the commit is most of the cost of a small append. The calls that share a
// transaction are a commit group. Commit groups that run at the same time have no partition in
// common, so that they do not block each other. Group is safe for concurrent use.
type Group struct {
	log *events.Log
	// append appends events in a transaction. fold appends events too, and may also fold them in
	// the same transaction.
	append, fold events.Append
	// small is the maximum number of events of a call that joins a commit group. A larger call
	// has a transaction of its own, which runs in parallel to the groups.
	small int
	// limit is the maximum number of commit groups that run concurrently.
	limit int
	// largeSlots has an element for each running larger append.
	largeSlots chan struct{}

	mu      sync.Mutex
	running int
	busy    eventlog.Set // the partitions of running groups
	large   int          // number of running larger appends
	// met is the arrival time of the last call that has at least `worthwhile` events and arrived
	// while other appends ran. loaded is true if this call arrived less than `shortly` after the
	// previous call that meets both conditions.
	met    time.Time
	loaded bool
	// waiting has the queued calls in order of arrival.
	waiting []*call
}

// call is a small append.
type call struct {
	evs        []events.Event
	partitions eventlog.Set
	// expected is the placement that the call requires; see [eventlog.Expect].
	expected *eventlog.PlacementSnapshot
	// rights has the tokens of the users on whose behalf the call appends.
	rights []eventlog.Right
	// group is set when the call is removed from the queue.
	group *commitGroup
	// wake wakes the goroutine of the call when it is closed. The goroutine of the first call
	// of a group runs the transaction: wake of the first call is closed when the group may
	// start. wake of any other call is closed when the group has committed or failed.
	wake chan struct{}
}

// commitGroup is a set of calls with one commit.
type commitGroup struct {
	calls      []*call
	events     int
	partitions eventlog.Set
	append     events.Append
	receipt    events.Receipt
	err        error
}

const (
	// largeGroup is the maximum number of events in all commit groups that start at the same
	// time, unless a single call has more events.
	largeGroup = 5000
	// worthwhile is the minimum number of queued events for starting another commit while commits
	// run. For fewer events, waiting until a running commit has ended costs less.
	worthwhile = 8
	// shortly is the maximum time between two calls that count as overlapping. Both calls must have
	// at least `worthwhile` events, and arrive while other appends run. During `shortly` after the
	// second call, appends do not fold: only the projectors fold. If appends folded too, appends
	// and projectors would block each other. shortly must be longer than the pauses between such
	// calls under load.
	shortly = 50 * time.Millisecond
	// maxLarge is how many appends of more than `small` events run concurrently. They use at most
	// half of the connections of a process. So other calls proceed while the larger appends wait
	// for locks on the tables of a partition.
	maxLarge = 8
	// groupTimeout limits the append of a commit group, which no caller's context can cancel. A
	// healthy database needs far less.
	groupTimeout = 30 * time.Second
)

// SmallAppend is the maximum number of events of an append that should share a transaction:
// up to this number, the commit is most of the cost.
const SmallAppend = 100

// New returns a Group for `log` that calls `append` for each transaction. Calls of at most `small`
// events share transactions; at most `limit` shared transactions run concurrently. Each larger call
// has a transaction of its own.
func New(log *events.Log, append events.Append, small, limit int) *Group {
	return &Group{log: log, append: append, fold: append, small: small, limit: limit, largeSlots: make(chan struct{}, maxLarge)}
}

// FoldBy makes transactions call `fold` instead of the function `append` of New. fold appends the
// events, and also folds them if possible. While calls of many events overlap, transactions still
// call `append`: the projectors then fold the events of several calls in one batch, in parallel to
// the next append. Call FoldBy before the first append.
func (g *Group) FoldBy(fold events.Append) *Group {
	g.fold = fold
	return g
}

// Append is like [events.Log.Append], but the transaction, and so the receipt, may include events
// of other callers. If ctx is done, Append returns an error, although the events may still be
// appended. If this call runs the transaction of its commit group, Append returns only after the
// transaction, even if ctx is done. ADR 54 has the reasons.
func (g *Group) Append(ctx context.Context, evs ...events.Event) (events.Receipt, error) {
	if len(evs) == 0 || len(evs) > g.small {
		return g.alone(ctx, evs)
	}
	c := &call{evs: evs, partitions: g.partitionsOf(evs), expected: eventlog.ExpectedBy(ctx), rights: eventlog.RightsOf(ctx), wake: make(chan struct{})}
	g.begin(func() {
		g.arrived(evs)
		g.waiting = append(g.waiting, c)
	})
	select {
	case <-c.wake:
	case <-ctx.Done():
		if g.cancel(c) {
			return events.Receipt{}, context.Cause(ctx)
		}
	}
	if c == c.group.calls[0] {
		g.run(ctx, c.group)
	}
	var bad *events.BatchError
	if errors.As(c.group.err, &bad) || errors.Is(c.group.err, eventlog.ErrRevoked) { // the events or tokens of one call fail the whole group, so each call retries alone
		return g.fold(ctx, evs...)
	}
	return c.group.receipt, c.group.err
}

// alone appends events in a transaction of their own.
func (g *Group) alone(ctx context.Context, evs []events.Event) (events.Receipt, error) {
	select {
	case g.largeSlots <- struct{}{}:
		defer func() { <-g.largeSlots }()
	case <-ctx.Done():
		return events.Receipt{}, context.Cause(ctx)
	}
	g.mu.Lock()
	g.arrived(evs)
	one := g.appends()
	g.large++
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		g.large--
		g.mu.Unlock()
	}()
	return one(ctx, evs...)
}

// arrived records the arrival of a call. g must be locked.
func (g *Group) arrived(evs []events.Event) {
	if len(evs) >= worthwhile && g.running+g.large > 0 {
		now := time.Now()
		g.met, g.loaded = now, now.Sub(g.met) < shortly
	}
}

// appends returns the function for an append that begins now: g.append while calls of many events
// overlap (see `shortly`), otherwise g.fold. An append that folds blocks other appends to its
// partitions until it commits, which slows overlapping calls. But single events, and calls that do
// not overlap, cost more if a second transaction folds them. g must be locked.
func (g *Group) appends() events.Append {
	if g.loaded && time.Since(g.met) < shortly {
		return g.append
	}
	return g.fold
}

// cancel is called when the caller of c stops waiting. If c is still queued, cancel removes it
// from the queue. cancel returns false if c is the first call of a group: the caller must then run
// the transaction of the group.
func (g *Group) cancel(c *call) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.group != nil {
		return c != c.group.calls[0]
	}
	g.waiting = slices.DeleteFunc(g.waiting, func(other *call) bool { return other == c })
	return true
}

// run appends the events of a commit group.
func (g *Group) run(ctx context.Context, c *commitGroup) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), groupTimeout)
	defer cancel()
	var evs []events.Event
	if len(c.calls) == 1 {
		evs = c.calls[0].evs
	} else {
		var expected *eventlog.PlacementSnapshot
		var rights []eventlog.Right
		evs = make([]events.Event, 0, c.events)
		for _, one := range c.calls {
			evs = append(evs, one.evs...)
			expected = expected.And(one.expected)
			rights = append(rights, one.rights...)
		}
		ctx = eventlog.WithRights(eventlog.Expect(ctx, expected), rights...)
	}
	c.receipt, c.err = c.append(ctx, evs...)
	g.begin(func() {
		g.running--
		g.busy.RemoveAll(&c.partitions)
	})
	for _, one := range c.calls[1:] {
		close(one.wake)
	}
}

// begin calls the function `change` while g is locked, and then starts the commit groups that may
// run now.
func (g *Group) begin(change func()) {
	g.mu.Lock()
	change()
	groups := g.next()
	g.mu.Unlock()
	for _, c := range groups {
		close(c.calls[0].wake)
	}
}

// next removes from the queue the calls that may run now, and divides them into commit groups.
// A call may run if each earlier call that shares a partition with it has ended, or joins the
// same group. g must be locked.
func (g *Group) next() []*commitGroup {
	room := g.limit - g.running
	if room == 0 || len(g.waiting) == 0 {
		return nil
	}
	sets, n := g.ready()
	if n < worthwhile && g.running > 0 {
		return nil
	}
	groups := make([]*commitGroup, min(room, len(sets), max(1, n/worthwhile)))
	for i := range groups {
		groups[i] = &commitGroup{}
	}
	for _, set := range sets {
		slices.MinFunc(groups, func(a, b *commitGroup) int { return a.events - b.events }).merge(set)
	}
	for _, c := range groups {
		c.append = g.appends()
		for _, one := range c.calls {
			one.group = c
		}
		g.busy.AddAll(&c.partitions)
	}
	g.running += len(groups)
	g.waiting = slices.DeleteFunc(g.waiting, func(c *call) bool { return c.group != nil })
	return groups
}

// ready returns the queued calls that can run now: they share no partition with running groups, or
// with earlier calls that stay queued. n is the total number of events of the returned calls. A
// call that would raise n above largeGroup stays queued, unless it would be the only returned call.
// ready divides the returned calls into sets; different sets have no partition in common.
func (g *Group) ready() (sets []*commitGroup, n int) {
	taken := g.busy
	for _, c := range g.waiting {
		if taken.Overlaps(&c.partitions) || n > 0 && n+len(c.evs) > largeGroup {
			taken.AddAll(&c.partitions)
			continue
		}
		n += len(c.evs)
		all := &commitGroup{}
		sets = slices.DeleteFunc(sets, func(set *commitGroup) bool {
			if !set.partitions.Overlaps(&c.partitions) {
				return false
			}
			all.merge(set)
			return true
		})
		all.merge(&commitGroup{calls: []*call{c}, events: len(c.evs), partitions: c.partitions})
		sets = append(sets, all)
	}
	return sets, n
}

// merge adds the calls of the group `other` after the calls of c. Calls that share a partition must
// stay in order.
func (c *commitGroup) merge(other *commitGroup) {
	c.calls = append(c.calls, other.calls...)
	c.events += other.events
	c.partitions.AddAll(&other.partitions)
}

// partitionsOf returns the partitions that get the events, unless partitions are split before the
// append.
func (g *Group) partitionsOf(evs []events.Event) (s eventlog.Set) {
	for i := range evs {
		d := &evs[i].Data
		for _, id := range d.UserIDs {
			s.Add(g.log.PartitionOf(id))
		}
		if len(d.UserIDs) == 0 { // a message to a room
			for _, p := range g.log.Layout().Living() {
				s.Add(p)
			}
			return s
		}
	}
	return s
}
