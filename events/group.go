package events

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Group appends to a log. It combines small appends that come while another runs
// into one transaction: the commit is most of the cost of a small append. It is safe
// for concurrent use.
type Group struct {
	append Append

	mu sync.Mutex
	// busy is set while an append of the group runs; next follows it.
	busy bool
	next *company
}

// company is a set of appends with one commit.
type company struct {
	evs []Event
	// turn is closed when the previous append has ended, done when this one has.
	turn, done chan struct{}
	receipt    Receipt
	err        error
}

const (
	// smallAppend is the most events of an append that is combined with others.
	// Larger ones run concurrently.
	smallAppend = 100
	// largeCompany is the most events of a company.
	largeCompany = 5000
	// groupTimeout bounds a combined append, which no caller's context can
	// cancel. A healthy database takes far less.
	groupTimeout = 30 * time.Second
)

// Append appends events in one transaction, as [Log.Append] does.
type Append func(ctx context.Context, evs ...Event) (Receipt, error)

// NewGroup returns a group whose transactions are calls of one.
func NewGroup(one Append) *Group { return &Group{append: one} }

// Append is like [Log.Append], but the transaction and so the receipt may include
// events of other callers. It returns when ctx is done; the events may be appended
// nevertheless.
func (g *Group) Append(ctx context.Context, evs ...Event) (Receipt, error) {
	if len(evs) > smallAppend {
		return g.append(ctx, evs...)
	}
	c, leads := g.join(evs)
	if c == nil {
		return g.append(ctx, evs...)
	}
	if leads {
		go g.lead(context.WithoutCancel(ctx), c)
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		return Receipt{}, context.Cause(ctx)
	}
	var bad *BatchError
	if errors.As(c.err, &bad) { // of some caller: each retries alone
		return g.append(ctx, evs...)
	}
	return c.receipt, c.err
}

// join adds evs to the next company. leads reports whether the caller must append
// it. It returns nil if the company is full.
func (g *Group) join(evs []Event) (c *company, leads bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.next == nil:
	case len(g.next.evs)+len(evs) > largeCompany:
		return nil, false
	default:
		g.next.evs = append(g.next.evs, evs...)
		return g.next, false
	}
	c = &company{evs: slices.Clone(evs), turn: make(chan struct{}), done: make(chan struct{})}
	if g.busy {
		g.next = c
	} else {
		g.busy = true
		close(c.turn)
	}
	return c, true
}

// lead appends a company in its turn, and starts the next.
func (g *Group) lead(ctx context.Context, c *company) {
	<-c.turn
	ctx, cancel := context.WithTimeout(ctx, groupTimeout)
	defer cancel()
	c.receipt, c.err = g.append(ctx, c.evs...)
	close(c.done)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.next == nil {
		g.busy = false
		return
	}
	close(g.next.turn)
	g.next = nil
}
