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
	// beside has a token for each append that runs beside them.
	beside chan struct{}

	mu      sync.Mutex
	running int
	busy    eventlog.Set // of the appends that run
	large   int          // appends that run beside these
	// met is when a call of many events last came while others ran, and loaded whether
	// the one before had come shortly before.
	met    time.Time
	loaded bool
	// waiting are the calls that wait, in the order in which they came.
	waiting []*call
}

// call is a small append.
type call struct {
	evs        []events.Event
	partitions eventlog.Set
	// expected is what the append expects, see [eventlog.Expect].
	expected *eventlog.Expected
	// rights are the tokens of users for which it appends.
	rights []eventlog.Right
	// company is set when the call does not wait any more.
	company *company
	// wake is closed when the company has ended or, for the first of its calls, when
	// it may begin.
	wake chan struct{}
}

// company is a set of calls with one commit.
type company struct {
	calls      []*call
	events     int
	partitions eventlog.Set
	append     events.Append
	receipt    events.Receipt
	err        error
}

const (
	// largeCompany is the most events of a company, if it has several calls.
	largeCompany = 5000
	// worthwhile is how many events must wait for a commit of their own beside
	// others. With fewer, a commit costs more than waiting for the next.
	worthwhile = 8
	// shortly is how long after calls of many events have met twice appends leave folding
	// to the loops, and within which the two must be. It has to outlast the pauses between
	// such calls under load: loops and appends that fold wait for each other.
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

// FoldBy makes the transactions calls of fold, which also folds the events where it can,
// except while calls of many events keep meeting: then loops fold what several of them have
// brought at once, beside the next append. Call it before the first append.
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
	if c == c.company.calls[0] {
		g.run(ctx, c.company)
	}
	var bad *events.BatchError
	if errors.As(c.company.err, &bad) || errors.Is(c.company.err, eventlog.ErrRevoked) { // of some caller: each retries alone
		return g.fold(ctx, evs...)
	}
	return c.company.receipt, c.company.err
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

// comes notes that a call has come. The caller has locked g.
func (g *Group) comes(evs []events.Event) {
	if len(evs) >= worthwhile && g.running+g.large > 0 {
		now := time.Now()
		g.met, g.loaded = now, now.Sub(g.met) < shortly
	}
}

// appends returns what runs an append that begins now. One that folds lets no other of its
// partitions begin before it has loaded, folded and written everything. A second
// transaction that does so beside the next append costs more for single events, at any rate, and
// for calls that meet no others. The caller has locked g.
func (g *Group) appends() events.Append {
	if g.loaded && time.Since(g.met) < shortly {
		return g.append
	}
	return g.fold
}

// leave reports whether the caller of c may return before c has ended. It must
// stay if its company has to be run, or is.
func (g *Group) leave(c *call) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.company != nil {
		return c != c.company.calls[0]
	}
	g.waiting = slices.DeleteFunc(g.waiting, func(other *call) bool { return other == c })
	return true
}

// run appends a company.
func (g *Group) run(ctx context.Context, c *company) {
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

// begin makes a change and lets the companies begin that can then.
func (g *Group) begin(change func()) {
	g.mu.Lock()
	change()
	companies := g.next()
	g.mu.Unlock()
	for _, c := range companies {
		close(c.calls[0].wake)
	}
}

// next takes the companies that may run now from the waiting calls. A call waits
// for all that came before it and touch one of its partitions.
func (g *Group) next() []*company {
	room := g.most - g.running
	if room == 0 || len(g.waiting) == 0 {
		return nil
	}
	sets, n := g.ready()
	if n < worthwhile && g.running > 0 {
		return nil
	}
	companies := make([]*company, min(room, len(sets), max(1, n/worthwhile)))
	for i := range companies {
		companies[i] = &company{}
	}
	for _, set := range sets {
		slices.MinFunc(companies, func(a, b *company) int { return a.events - b.events }).merge(set)
	}
	for _, c := range companies {
		c.append = g.appends()
		for _, one := range c.calls {
			one.company = c
		}
		g.busy.AddAll(&c.partitions)
	}
	g.running += len(companies)
	g.waiting = slices.DeleteFunc(g.waiting, func(c *call) bool { return c.company != nil })
	return companies
}

// ready returns the waiting calls that need no busy partition, n events in all,
// in sets that share no partition.
func (g *Group) ready() (sets []*company, n int) {
	taken := g.busy
	for _, c := range g.waiting {
		if taken.Overlaps(&c.partitions) || n > 0 && n+len(c.evs) > largeCompany {
			taken.AddAll(&c.partitions)
			continue
		}
		n += len(c.evs)
		all := &company{}
		sets = slices.DeleteFunc(sets, func(set *company) bool {
			if !set.partitions.Overlaps(&c.partitions) {
				return false
			}
			all.merge(set)
			return true
		})
		all.merge(&company{calls: []*call{c}, events: len(c.evs), partitions: c.partitions})
		sets = append(sets, all)
	}
	return sets, n
}

// merge adds the calls of another company. Those that share a partition must stay
// in order.
func (c *company) merge(other *company) {
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
