package shards

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/eventlog"
	"github.com/badged/badged/internal/wait"
)

// moveWait is how long a call waits for a partition that is being switched from one shard to
// another, and movePause the pause between attempts. The switch takes less than a second.
const (
	moveWait  = 3 * time.Second
	movePause = 20 * time.Millisecond
)

// Appender appends events to the shards that hold their users. It is safe for
// concurrent use.
type Appender struct {
	cluster *Cluster
	// to append to the shards, by the index of the shard.
	to []events.Append
	// hinting is set if the appender stores hints for shards that are away.
	hinting bool
}

// NewAppender returns an appender whose appends to a shard are calls of to.
func NewAppender(c *Cluster, to func(*Shard) events.Append) *Appender {
	a := &Appender{cluster: c, hinting: true}
	for _, s := range c.shards {
		a.to = append(a.to, to(s))
	}
	return a
}

// With returns an appender to the same shards whose appends to a shard are calls of to, which do
// more than append: it stores no hints for shards that are away.
func (a *Appender) With(to func(*Shard) events.Append) *Appender {
	other := &Appender{cluster: a.cluster}
	for _, s := range a.cluster.shards {
		other.to = append(other.to, to(s))
	}
	return other
}

// Append appends events to all shards that hold some of their users, to each in one
// transaction and to all at the same time. It returns nil once all shards have them. After an
// error some shards may have them: append all again, since repeated events count once. Events
// for one shard are appended all or none, except that messages to a room follow once all
// shards have the joins before them: see [SplitAtJoins].
//
// If a shard is away and its events are all about rooms, another shard stores them as a hint:
// see [Appender.ReplayHints]. Otherwise the error wraps [ErrAway]. It is a
// [*events.BatchError] if events are invalid; then none is appended.
func (a *Appender) Append(ctx context.Context, evs ...events.Event) (events.Receipt, error) {
	return a.append(ctx, appending{Appender: a}, evs)
}

// append is Append, by a call that may say which shard stores the hints.
func (a *Appender) append(ctx context.Context, call appending, evs []events.Event) (events.Receipt, error) {
	if len(evs) == 0 {
		return events.Receipt{}, nil
	}
	if !a.cluster.sharded {
		return a.to[0](ctx, evs...)
	}
	call.token = token{moves: a.cluster.moves(), positions: map[string]int64{}}
	if s := a.cluster.only(evs); s != nil {
		call.parts = []part{{shard: s, events: evs, expected: a.cluster.state.Load().expected[s.index]}}
		return call.run(ctx)
	}
	if err := events.Check(evs); err != nil { // before any shard has some
		return events.Receipt{}, err
	}
	return call.stages(ctx, evs)
}

// AppendElsewhere appends one stage of [SplitAtJoins] to all shards but here, and then calls last
// with the events for here, perhaps none. It is for callers that store these events together
// with something else. It returns what last returns, with the partitions to be woken of all.
func (a *Appender) AppendElsewhere(ctx context.Context, here *Shard, evs []events.Event, last events.Append) (events.Receipt, error) {
	if !a.cluster.sharded || len(evs) == 0 {
		return last(ctx, evs...)
	}
	if err := events.Check(evs); err != nil { // before any shard has some
		return events.Receipt{}, err
	}
	call := appending{Appender: a, token: token{moves: a.cluster.moves(), positions: map[string]int64{}}}
	call.here.shard = here
	call.split(evs)
	var others events.Receipt
	if len(call.parts) > 0 {
		var err error
		if others, err = call.run(ctx); err != nil {
			return events.Receipt{}, err
		}
	}
	if err := call.replayBefore(ctx, call.here); err != nil {
		return events.Receipt{}, err
	}
	r, err := last(call.here.expecting(ctx), call.here.events...)
	r.Partitions = append(r.Partitions, others.Partitions...)
	return r, err
}

// appending is a call of Append.
type appending struct {
	*Appender
	// target is the shard that stores the hints; nil means any other shard. origin names the
	// hint that stored the events first, if they are handed on.
	target *Shard
	origin hintRef
	parts  []part
	// here is the part that the caller appends after all others, if it names a shard.
	here part
	// has lists, by the index of a shard, the partitions whose logs have the messages to rooms.
	has   map[int]*eventlog.Expected
	token token
	// partitions are the partitions whose projectors are to be woken.
	partitions []int
}

// split adds the parts of events, without messages to rooms that their shard has.
func (a *appending) split(evs []events.Event) {
	for _, p := range a.cluster.split(evs) {
		if has, ok := a.has[p.index()]; ok && (p.shard == a.here.shard || has.Equal(p.expected)) {
			p.events = slices.DeleteFunc(p.events, func(e events.Event) bool { return len(e.Data.UserIDs) == 0 })
		}
		switch {
		case len(p.events) == 0:
		case p.shard != nil && p.shard == a.here.shard:
			a.here.events, a.here.expected = append(a.here.events, p.events...), p.expected
			a.took(p)
		default:
			a.parts = append(a.parts, p)
		}
	}
}

// took records that a shard has a part, or will have it.
func (a *appending) took(p part) {
	if a.has == nil {
		a.has = map[int]*eventlog.Expected{}
	}
	a.has[p.index()] = p.expected
}

// run appends all parts. If a shard refuses a part, since a partition has moved, it splits the
// part again.
func (a *appending) run(ctx context.Context) (events.Receipt, error) {
	var deadline time.Time
	for {
		refused, err := a.once(ctx)
		if err != nil {
			return events.Receipt{}, err
		}
		if len(refused) == 0 {
			slices.Sort(a.partitions)
			return events.Receipt{Partitions: slices.Compact(a.partitions), Shards: a.token.String()}, nil
		}
		switch {
		case deadline.IsZero(): // the wait begins with the first refusal
			deadline = time.Now().Add(moveWait)
		case time.Now().After(deadline):
			return events.Receipt{}, fmt.Errorf("append %d events: %w", len(refused[0].events), notHeld(refused))
		}
		if err := wait.For(ctx, movePause); err != nil {
			return events.Receipt{}, err
		}
		_ = a.cluster.Reload(ctx) // if it fails, the last map stays
		a.parts, a.token.moves = nil, a.cluster.moves()
		for _, p := range refused {
			a.split(p.events)
		}
	}
}

// notHeld returns why shards refused events for longer than a move takes.
func notHeld(refused []part) error {
	var errs []error
	for _, p := range refused {
		errs = append(errs, p.shard.lost())
	}
	return cmp.Or(errors.Join(errs...), events.ErrNotHeld)
}

// once appends the parts at the same time, and returns those that were refused.
func (a *appending) once(ctx context.Context) (refused []part, err error) {
	receipts, errs := make([]events.Receipt, len(a.parts)), make([]error, len(a.parts))
	if len(a.parts) == 1 {
		receipts[0], errs[0] = a.one(ctx, a.parts[0])
	} else {
		var g sync.WaitGroup
		for i, p := range a.parts {
			g.Go(func() { receipts[i], errs[i] = a.one(ctx, p) })
		}
		g.Wait()
	}
	a.storeHints(ctx, errs)
	var failed []error
	for i, p := range a.parts {
		switch {
		case errors.Is(errs[i], errHinted):
		case errors.Is(errs[i], events.ErrNotHeld):
			refused = append(refused, p)
		case errs[i] != nil:
			failed = append(failed, errs[i])
		default:
			a.took(p)
			a.token.positions[p.shard.Name] = max(a.token.positions[p.shard.Name], int64(eventlog.NewToken(receipts[i].Timeline, receipts[i].TransactionID)))
			a.partitions = append(a.partitions, receipts[i].Partitions...)
		}
	}
	if len(failed) > 0 && len(refused) > 0 {
		failed = append(failed, events.ErrNotHeld) // these are not tried again
	}
	return refused, errors.Join(failed...)
}

// one appends a part. It does not wait for a shard that is away.
func (a *appending) one(ctx context.Context, p part) (events.Receipt, error) {
	if p.shard == nil {
		return events.Receipt{}, p.unknown
	}
	if err := p.shard.Err(); err != nil {
		return events.Receipt{}, err
	}
	type result struct {
		receipt events.Receipt
		err     error
	}
	ctx, cancel := context.WithCancel(p.expecting(ctx))
	defer cancel()
	done := make(chan result, 1)
	go func() {
		err := a.replayBefore(ctx, p)
		var r events.Receipt
		if err == nil {
			r, err = a.to[p.shard.index](ctx, p.events...)
		}
		done <- result{r, err}
	}()
	for {
		changed := a.cluster.Changed()
		if err := p.shard.Err(); err != nil {
			return events.Receipt{}, err // the shard may have the events
		}
		select {
		case r := <-done:
			if r.err != nil && a.cluster.sharded {
				r.err = p.shard.named(r.err)
			}
			return r.receipt, r.err
		case <-changed:
		}
	}
}

// named adds the shard to an error, unless the error is about events. A shard without its tables
// is away: it has nothing of its users.
func (s *Shard) named(err error) error {
	var bad *events.BatchError
	switch {
	case err == nil || s.Name == "" || errors.As(err, &bad):
		return err
	case errors.Is(err, events.ErrNotMigrated) || undefined(err):
		if lost := s.lost(); lost != nil {
			return lost
		}
		return &AwayError{Shard: s.Name, Partitions: s.Held(), Err: err, Bare: true}
	}
	return &FaultError{s.Name, s.Held(), err}
}
