package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/log/eventlog"
)

// moveWait limits how long a call is retried while a partition moves to another database and no
// database accepts its events. This step of a move takes less than a second. movePause is the
// pause between attempts.
const (
	moveWait  = 3 * time.Second
	movePause = 20 * time.Millisecond
)

// Appender appends events to the databases that hold their users. It is safe for
// concurrent use.
type Appender struct {
	cluster *Cluster
	// appendTo[i] appends to database i.
	appendTo []events.Append
	// hinting is true if the appender stores hints for unavailable databases.
	hinting bool
}

// NewAppender returns an appender that stores hints. For each database, appendTo returns the
// function that the appender calls to append to this database.
func NewAppender(c *Cluster, appendTo func(*Database) events.Append) *Appender {
	a := &Appender{cluster: c, hinting: true}
	for _, s := range c.databases {
		a.appendTo = append(a.appendTo, appendTo(s))
	}
	return a
}

// WithAppends returns an appender to the same databases. For each database, appendTo returns the
// function that the new appender calls to append. These functions may do more than append, but the
// replay of a hint would only append. So the new appender stores no hints: while a database is
// unavailable, appending to it fails.
func (a *Appender) WithAppends(appendTo func(*Database) events.Append) *Appender {
	other := &Appender{cluster: a.cluster}
	for _, s := range a.cluster.databases {
		other.appendTo = append(other.appendTo, appendTo(s))
	}
	return other
}

// Append appends events to all databases that hold their users, in parallel, in one transaction
// for each database. It returns without an error after all databases have committed. After an
// error, some databases may have committed: append all events again; a repeated event counts
// once. A database commits all of its events or none, with one exception: if users join a room
// and a message to this room follows, then a second transaction appends the message, after all
// databases have committed the joins. See [SplitAtJoins].
//
// If a database is unavailable and all events for it are messages to rooms or recalls of such
// messages, another database stores the events as a hint: see [Appender.ReplayHints]. For other
// events, the error wraps [ErrAway]; it is a [*PartialFailure] if the partitions of the missing
// events are known. If events are invalid, nothing is appended and the error is a
// [*events.BatchError].
func (a *Appender) Append(ctx context.Context, evs ...events.Event) (events.Receipt, error) {
	r, err := a.append(ctx, appending{Appender: a}, evs)
	return r, a.cluster.partialAppend(err)
}

// append does the work of Append. The caller may set the fields target and origin of `call`.
func (a *Appender) append(ctx context.Context, call appending, evs []events.Event) (events.Receipt, error) {
	if len(evs) == 0 {
		return events.Receipt{}, nil
	}
	if !a.cluster.several {
		return a.appendTo[0](ctx, evs...)
	}
	call.token = token{moves: a.cluster.moves(), positions: map[string]int64{}}
	if s := a.cluster.singleDatabase(evs); s != nil {
		call.parts = []part{{database: s, events: evs, expected: a.cluster.state.Load().expected[s.index]}}
		return call.run(ctx)
	}
	if err := events.Check(evs); err != nil { // before any database has stored events
		return events.Receipt{}, err
	}
	call.commits = true
	return call.stages(ctx, evs)
}

// AppendElsewhere is for callers that append to the database `here` in their own transaction. evs
// is one stage of [SplitAtJoins]. AppendElsewhere first appends the events for all other databases.
// Then it calls `last` with the events for `here`, even if there are none. It returns the receipt
// of `last`, to which it adds the partitions of other databases that got events.
func (a *Appender) AppendElsewhere(ctx context.Context, here *Database, evs []events.Event, last events.Append) (events.Receipt, error) {
	if !a.cluster.several || len(evs) == 0 {
		return last(ctx, evs...)
	}
	if err := events.Check(evs); err != nil { // before any database has stored events
		return events.Receipt{}, err
	}
	call := appending{Appender: a, token: token{moves: a.cluster.moves(), positions: map[string]int64{}}}
	call.here.database = here
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

// appending is the state of one call of Append or AppendElsewhere.
type appending struct {
	*Appender
	// target is the database that must store new hints; nil means any database. If the events
	// come from an older hint, origin names the hint that stored them first.
	target *Database
	origin hintRef
	parts  []part
	// here is the part that the caller appends in its own transaction, after all other parts were
	// appended. Only AppendElsewhere sets it.
	here part
	// appended has an entry for each database that has committed a part, by the index of the
	// database. The value is the `expected` of that part: the partitions that the map assigned to
	// the database. As long as the map assigns the same partitions to the database, split omits
	// messages to rooms from further parts for this database.
	appended map[int]*eventlog.PlacementSnapshot
	token    token
	// commits is true if the events are valid and belong to several databases. If one database then
	// refuses its part as invalid, other databases may already have committed their parts. So
	// appendPart then appends the part with [events.Log.AppendOwn], and the projector makes dead
	// letters of the invalid events.
	commits bool
	// partitions has the partitions with new events; the caller wakes their projectors.
	partitions []int
}

// split splits events into one part for each database, and adds the parts to a.parts. It omits
// messages to rooms from the part of a database that already has these messages.
func (a *appending) split(evs []events.Event) {
	for _, p := range a.cluster.split(evs) {
		if has, ok := a.appended[p.index()]; ok && (p.database == a.here.database || has.Equal(p.expected)) {
			p.events = slices.DeleteFunc(p.events, func(e events.Event) bool { return len(e.Data.UserIDs) == 0 })
		}
		switch {
		case len(p.events) == 0:
		case p.database != nil && p.database == a.here.database:
			a.here.events, a.here.expected = append(a.here.events, p.events...), p.expected
			a.took(p)
		default:
			a.parts = append(a.parts, p)
		}
	}
}

// took records in a.appended that a database has committed the part p, or that the caller will
// commit it.
func (a *appending) took(p part) {
	if a.appended == nil {
		a.appended = map[int]*eventlog.PlacementSnapshot{}
	}
	a.appended[p.index()] = p.expected
}

// run appends all parts. If a database refuses a part because a partition has moved, run reloads
// the map, splits the events of this part by the new map, and appends them. It returns an error if
// databases still refuse parts moveWait after the first refusal.
func (a *appending) run(ctx context.Context) (events.Receipt, error) {
	var deadline time.Time
	for {
		refused, err := a.appendParts(ctx)
		if err != nil {
			return events.Receipt{}, err
		}
		if len(refused) == 0 {
			slices.Sort(a.partitions)
			return events.Receipt{Partitions: slices.Compact(a.partitions), Token: a.token.String()}, nil
		}
		switch {
		case deadline.IsZero(): // the first refusal starts the clock
			deadline = time.Now().Add(moveWait)
		case time.Now().After(deadline):
			return events.Receipt{}, fmt.Errorf("append %d events: %w", len(refused[0].events), notHeld(refused))
		}
		if err := wait.For(ctx, movePause); err != nil {
			return events.Receipt{}, err
		}
		_ = a.cluster.Reload(ctx) // on failure the last map stays in use
		a.parts, a.token.moves = nil, a.cluster.moves()
		for _, p := range refused {
			a.split(p.events)
		}
	}
}

// notHeld returns the error for parts that databases have refused for longer than moveWait.
func notHeld(refused []part) error {
	var errs []error
	for _, p := range refused {
		errs = append(errs, p.database.lost())
	}
	return cmp.Or(errors.Join(errs...), events.ErrNotHeld)
}

// appendParts appends all parts in parallel. refused has the parts that databases refused because a
// partition has moved.
func (a *appending) appendParts(ctx context.Context) (refused []part, err error) {
	receipts, errs := make([]events.Receipt, len(a.parts)), make([]error, len(a.parts))
	if len(a.parts) == 1 {
		receipts[0], errs[0] = a.appendPart(ctx, a.parts[0])
	} else {
		var g sync.WaitGroup
		for i, p := range a.parts {
			g.Go(func() { receipts[i], errs[i] = a.appendPart(ctx, p) })
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
			a.token.positions[p.database.Name] = max(a.token.positions[p.database.Name], int64(eventlog.NewToken(receipts[i].Timeline, receipts[i].TransactionID)))
			a.partitions = append(a.partitions, receipts[i].Partitions...)
		}
	}
	if len(failed) > 0 && len(refused) > 0 {
		failed = append(failed, events.ErrNotHeld) // the refused parts are not appended again
	}
	return refused, errors.Join(failed...)
}

// appendPart appends a part. If the database is unavailable, or becomes so during the append,
// appendPart fails without further waiting.
func (a *appending) appendPart(ctx context.Context, p part) (events.Receipt, error) {
	if p.database == nil {
		return events.Receipt{}, p.unknown
	}
	if err := p.database.Err(); err != nil {
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
			r, err = a.appendTo[p.database.index](ctx, p.events...)
			if _, refused := errors.AsType[*events.BatchError](err); refused && a.commits {
				r, err = p.database.Log.AppendOwn(ctx, p.events...) // its projector makes dead letters
			}
		}
		done <- result{r, err}
	}()
	for {
		changed := a.cluster.Changed()
		if err := p.database.Err(); err != nil {
			return events.Receipt{}, err // the database may have committed
		}
		select {
		case r := <-done:
			return r.receipt, p.database.Wrap(r.err)
		case <-changed:
		}
	}
}

// Wrap wraps an error in a [*Fault] that names the database. It does not wrap a
// [*events.BatchError], which is about the events. If tables of badged are missing, the fault
// also wraps [ErrAway], since the database then has no data of its users.
func (s *Database) Wrap(err error) error {
	var bad *events.BatchError
	switch {
	case err == nil || s.Name == "" || errors.As(err, &bad):
		return err
	case errors.Is(err, events.ErrNotMigrated) || undefined(err):
		if lost := s.lost(); lost != nil {
			return lost
		}
		return &Fault{Kind: Bare, Database: s.Name, Partitions: s.Held(), Err: err}
	}
	return &Fault{Database: s.Name, Partitions: s.Held(), Err: err}
}
