// Package grouping appends small calls that arrive together in one transaction.
//
// It does not know how events are appended: callers give it a function. ADR 54 has the
// reasons.
package grouping

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/eventlog"
)

// Group appends to a log. It combines small appends that come while others run:
// the commit is most of the cost of a small append. Appends that it runs at the
// same time touch different partitions, so that they do not wait for each other.
// It is safe for concurrent use.
type Group struct {
	log *events.Log
	// append appends events; fold may also fold them, in the same transaction.
	append, fold events.Append
	// small is the most events of an append that is combined with others. Larger ones
	// run beside them.
	small int
	// most is how many appends run at once.
	most int
	// beside has a token for each larger append that runs.
	beside chan struct{}

	mu      sync.Mutex
	running int
	busy    eventlog.Set // the partitions of running groups
	large   int          // running appends of more than small events
	// met is when a call of many events last arrived while others ran, and loaded whether
	// the one before had arrived shortly before.
	met    time.Time
	loaded bool
	// waiting are the queued calls in order of arrival.
	waiting []*call
}

// call is a small append.
type call struct {
	evs        []events.Event
	partitions eventlog.Set
	// expected is what the append expects, see [eventlog.Expect].
	expected *eventlog.Expected
	// rights are the tokens of the users in whose name the call appends.
	rights []eventlog.Right
	// group is set when the call is no longer in the queue.
	group *commitGroup
	// wake is closed when the commit of the group has ended or, for the first of its calls, when
	// it may begin.
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
	// largeGroup is the most events of a group of several calls.
	largeGroup = 5000
	// worthwhile is how many queued events are worth a commit beside the running ones. With
	// fewer, a commit costs more than waiting for the next.
	worthwhile = 8
	// shortly is the window in which calls of many events must meet twice, and for how long
	// appends then do not fold, so that the loops do. It must be longer than the pauses
	// between such calls under load: loops and appends that fold wait for each other.
	shortly = 50 * time.Millisecond
	// mostBeside is how many larger appends run at once: half of the connections of a
	// process, so that others go on while these wait for the tables of a partition.
	mostBeside = 8
	// groupTimeout bounds a combined append, which no caller's context can
	// cancel. A healthy database takes far less.
	groupTimeout = 30 * time.Second
)

// SmallAppend is the most events of an append whose commit is most of its cost.
const SmallAppend = 100

// New returns a group for log whose transactions are calls of append. It combines appends
// of at most small events, and runs at most `most` transactions at once. Larger appends
// are transactions of their own, beside these.
func New(log *events.Log, append events.Append, small, most int) *Group {
	return &Group{log: log, append: append, fold: append, small: small, most: most, beside: make(chan struct{}, mostBeside)}
}

// FoldBy makes the transactions calls of fold, which also folds the events where it can, except
// while calls of many events keep meeting: then the loops fold the events of several calls at
// once, beside the next append. Call it before the first append.
func (g *Group) FoldBy(fold events.Append) *Group {
	g.fold = fold
	return g
}

// Append is like [events.Log.Append], but the transaction and so the receipt may include
// events of other callers. When ctx is done it returns, unless it is the caller
// that runs the transaction for all; the events may be appended nevertheless.
// ADR 54 has the reasons.
func (g *Group) Append(ctx context.Context, evs ...events.Event) (events.Receipt, error) {
	if len(evs) == 0 || len(evs) > g.small {
		return g.alone(ctx, evs)
	}
	c := &call{evs: evs, partitions: g.partitionsOf(evs), expected: eventlog.ExpectedBy(ctx), rights: eventlog.RightsOf(ctx), wake: make(chan struct{})}
	g.begin(func() {
		g.comes(evs)
		g.waiting = append(g.waiting, c)
	})
	select {
	case <-c.wake:
	case <-ctx.Done():
		if g.leave(c) {
			return events.Receipt{}, context.Cause(ctx)
		}
	}
	if c == c.group.calls[0] {
		g.run(ctx, c.group)
	}
	var bad *events.BatchError
	if errors.As(c.group.err, &bad) || errors.Is(c.group.err, eventlog.ErrRevoked) { // of some caller: each retries alone
		return g.fold(ctx, evs...)
	}
	return c.group.receipt, c.group.err
}

// alone appends events in a transaction of their own.
func (g *Group) alone(ctx context.Context, evs []events.Event) (events.Receipt, error) {
	select {
	case g.beside <- struct{}{}:
		defer func() { <-g.beside }()
	case <-ctx.Done():
		return events.Receipt{}, context.Cause(ctx)
	}
	g.mu.Lock()
	g.comes(evs)
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

// comes records the arrival of a call. The caller has locked g.
func (g *Group) comes(evs []events.Event) {
	if len(evs) >= worthwhile && g.running+g.large > 0 {
		now := time.Now()
		g.met, g.loaded = now, now.Sub(g.met) < shortly
	}
}

// appends returns the function for an append that begins now. An append that folds blocks other
// appends to its partitions until it has loaded, folded and written everything. Folding in a
// second transaction costs more for single events, at any rate, and for calls that arrive alone.
// The caller has locked g.
func (g *Group) appends() events.Append {
	if g.loaded && time.Since(g.met) < shortly {
		return g.append
	}
	return g.fold
}

// leave reports whether the caller of c may return before c has ended. It must stay if it runs
// the group, or has to.
func (g *Group) leave(c *call) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.group != nil {
		return c != c.group.calls[0]
	}
	g.waiting = slices.DeleteFunc(g.waiting, func(other *call) bool { return other == c })
	return true
}

// run appends the events of a group.
func (g *Group) run(ctx context.Context, c *commitGroup) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), groupTimeout)
	defer cancel()
	var evs []events.Event
	if len(c.calls) == 1 {
		evs = c.calls[0].evs
	} else {
		var expected *eventlog.Expected
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

// begin makes a change and starts the groups that may run after it.
func (g *Group) begin(change func()) {
	g.mu.Lock()
	change()
	groups := g.next()
	g.mu.Unlock()
	for _, c := range groups {
		close(c.calls[0].wake)
	}
}

// next returns groups of the queued calls that may run now. A call waits for all earlier calls
// that touch one of its partitions.
func (g *Group) next() []*commitGroup {
	room := g.most - g.running
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

// ready returns the waiting calls that need no busy partition, n events in all,
// in sets that share no partition.
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

// merge adds the calls of another group. Calls that share a partition must stay in order.
func (c *commitGroup) merge(other *commitGroup) {
	c.calls = append(c.calls, other.calls...)
	c.events += other.events
	c.partitions.AddAll(&other.partitions)
}

// partitionsOf returns the partitions that appending events probably touches.
func (g *Group) partitionsOf(evs []events.Event) (s eventlog.Set) {
	for i := range evs {
		d := &evs[i].Data
		for _, id := range d.UserIDs {
			s.Add(g.log.PartitionOf(id))
		}
		if len(d.UserIDs) == 0 { // a message to a room
			return (*eventlog.Layout)(g.log.Layout()).Set()
		}
	}
	return s
}
