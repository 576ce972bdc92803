package events

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Group appends to a log, and commits small appends that come while another is
// under way together: one commit, which is what an append of one event mostly
// costs, for all who wait. It is safe for concurrent use.
type Group struct {
	log *Log

	mu sync.Mutex
	// busy is set while an append of the group is under way, next is what is
	// to follow it.
	busy bool
	next *company
}

// company are appends that are committed together.
type company struct {
	evs []Event
	// turn is closed when the append before has ended, done when this has.
	turn, done chan struct{}
	receipt    Receipt
	err        error
}

const (
	// smallAppend is the most events of an append that waits for others: a large
	// one is its own company, and best done beside them.
	smallAppend = 100
	// largeCompany is when a company takes no more.
	largeCompany = 5000
	// groupTimeout ends an append that no caller's context does, since it is
	// that of others too. A database that answers takes far less.
	groupTimeout = 30 * time.Second
)

// NewGroup returns a group that appends to log.
func NewGroup(log *Log) *Group { return &Group{log: log} }

// Append is [Log.Append], except that the transaction, and so the receipt, may
// hold the events of others too, and that it goes on where ctx is done first:
// then, too, the events may have been appended.
func (g *Group) Append(ctx context.Context, evs ...Event) (Receipt, error) {
	if len(evs) > smallAppend {
		return g.log.Append(ctx, evs...)
	}
	c, leads := g.join(evs)
	if c == nil {
		return g.log.Append(ctx, evs...)
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
	if errors.As(c.err, &bad) { // somebody's; who it was, each finds out alone
		return g.log.Append(ctx, evs...)
	}
	return c.receipt, c.err
}

// join adds evs to the company that is next, and reports whether the caller is
// the one to append it. It returns nil where that has no room.
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

// lead appends a company when it is its turn, and gives the turn on.
func (g *Group) lead(ctx context.Context, c *company) {
	<-c.turn
	ctx, cancel := context.WithTimeout(ctx, groupTimeout)
	defer cancel()
	c.receipt, c.err = g.log.Append(ctx, c.evs...)
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
