package gateway

import (
	"context"
	"slices"
	"time"

	"github.com/badged/badged/gateway/internal/view"
	"github.com/badged/badged/gateway/protocol"
	"github.com/badged/badged/pubsub"
)

// The backoff between reads of the tables, after one that failed or that an
// update overtook.
const (
	firstSyncBackoff = 5 * time.Millisecond
	lastSyncBackoff  = 2 * time.Second
	// greetingAttempts is how many reads may fail before a client that has no
	// state yet is closed, so that it tries another gateway.
	greetingAttempts = 8
)

// stateSender sends one client its state. It knows what the client holds and
// sends nothing older, except a snapshot of tables that lack what it holds.
type stateSender struct {
	session *session
	// epoch and version are what the client holds.
	epoch   string
	version int64
	// greeted is set when the client's hello is answered.
	greeted bool
	// view is what the client sees if that is not everything, or nil.
	view *view.Categories

	// due schedules the next read of the tables, after backoff; nil before the
	// first.
	due     *time.Timer
	backoff time.Duration
	// failures is how many reads in a row have failed.
	failures int
	// since is when the oldest change that a sync is to send was appended; 0 if
	// there is none or that is unknown.
	since view.Moment
}

func newStateSender(s *session) *stateSender {
	return &stateSender{session: s, epoch: s.epoch, version: s.version}
}

// deliver writes what was in the mailbox. After an error the connection is
// broken.
func (ss *stateSender) deliver(d *view.Delivery) error {
	for _, frame := range d.Replies {
		if err := ss.session.send(frame); err != nil {
			return err
		}
	}
	if d.Badge != nil {
		if err := ss.changes(d.Badge, d.Conversations, false); err != nil {
			return err
		}
		ss.session.gateway.observeStale(d.Since)
		if trace := ss.session.gateway.cfg.Trace; trace != nil && d.Traced != nil {
			trace(d.Traced.Parent, d.Traced.Came, time.Now())
		}
	}
	return nil
}

// changes writes what changed since the state that the client holds. whole says that the
// badge has all categories, not only those that changed.
func (ss *stateSender) changes(b *pubsub.Badge, conversations []pubsub.Conversation, whole bool) error {
	return ss.session.send(ss.changesFrame(b, conversations, whole))
}

func (ss *stateSender) changesFrame(b *pubsub.Badge, conversations []pubsub.Conversation, whole bool) protocol.StateFrame {
	newer := conversations
	if slices.ContainsFunc(conversations, ss.has) { // they reached the client by another way
		newer = slices.DeleteFunc(slices.Clone(conversations), ss.has)
	}
	ss.epoch, ss.version = b.Epoch, b.Version
	if ss.view != nil {
		b, newer = ss.view.Changes(b, newer)
	}
	return protocol.NewStateFrame("changes", b, newer, whole)
}

// has reports whether the client holds a conversation.
func (ss *stateSender) has(c pubsub.Conversation) bool { return c.Version <= ss.version }

// sync brings the client up to date from the tables. It runs again after a
// backoff when the read failed, or when an update overtook it. What the bus or
// the client announced before the read was committed by then: the read finds it,
// or it was never true.
func (ss *stateSender) sync(ctx context.Context) error {
	s := ss.session
	at, began := view.At(s.gateway.clock.Now()), s.gateway.hub.rooms.now()
	reading := s.mailbox.Read()
	ss.since = ss.since.Older(reading.Since)
	categories := s.who().Categories
	state, err := ss.read(ctx, categories, reading.Whole)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		s.gateway.log.WarnContext(ctx, "cannot read the state of a client's user", "error", err)
		if ss.failures++; !ss.greeted && ss.failures == greetingAttempts {
			s.end(*comeBack("the state cannot be read right now"))
			return nil
		}
		ss.again()
		return nil
	}
	ss.failures = 0
	s.gateway.admission.leave(s)
	ss.countAhead(&state, &reading)
	if err := ss.sendState(&state, categories, reading.Whole); err != nil {
		return err
	}
	ss.since = 0
	if !ss.settle(ctx, &state, began, reading.Whole, at) {
		ss.again()
		return nil
	}
	ss.backoff = 0
	if !slices.Equal(categories, s.who().Categories) { // a fresh token came during the read
		s.mailbox.Renew()
	}
	return nil
}

// settle reports whether the client is up to date with a state that it was sent.
func (ss *stateSender) settle(ctx context.Context, state *pubsub.Snapshot, began int64, whole bool, at view.Moment) bool {
	s := ss.session
	joinCtx, cancel := context.WithTimeout(ctx, s.gateway.cfg.JoinTimeout)
	defer cancel()
	settled, err := s.gateway.hub.settle(joinCtx, s, state, began, whole, at)
	if err != nil && ctx.Err() == nil {
		s.gateway.log.WarnContext(ctx, "the bus did not acknowledge rooms in time; serving from the tables", "error", err)
	}
	return settled
}

// again schedules a sync after a growing backoff. It schedules a look into the
// mailbox, which knows whether a read is still needed: an earlier task may have
// done it, and a read while the mailbox takes updates would overtake them.
func (ss *stateSender) again() {
	ss.backoff = min(max(2*ss.backoff, firstSyncBackoff), lastSyncBackoff)
	if ss.due == nil {
		ss.due = time.AfterFunc(ss.backoff, func() { ss.session.schedule(taskSend) })
		return
	}
	ss.due.Reset(ss.backoff)
}

// stop cancels the sync that is due, if any.
func (ss *stateSender) stop() {
	if ss.due != nil {
		ss.due.Stop()
	}
}

// countAhead counts states that the tables lack although the client claimed them
// or the bus announced them before the read.
func (ss *stateSender) countAhead(state *pubsub.Snapshot, r *view.Reading) {
	m := ss.session.gateway.metrics
	ahead := state.Epoch == ss.epoch && state.Version < ss.version
	switch {
	case ahead && !ss.greeted:
		m.aheadHello.Inc()
	case r.Whole: // compare has counted it
	case ahead, state.Epoch == r.HeardEpoch && state.Version < r.Heard:
		m.aheadUpdate.Inc()
	}
}

// read returns the changes that the client lacks, or the whole state. A client that
// may not see everything always gets the whole: changes do not tell how many mentions
// are in its categories.
func (ss *stateSender) read(ctx context.Context, categories []string, whole bool) (state pubsub.Snapshot, err error) {
	s := ss.session
	ctx, cancel := context.WithTimeout(ctx, s.gateway.cfg.ReadTimeout)
	defer cancel()
	if categories != nil {
		err = s.gateway.lookUp(ctx, s.userID, func() (err error) {
			state, err = s.gateway.cfg.Badges.View(ctx, s.userID, categories)
			return err
		})
		return state, err
	}
	held := pubsub.Held{UserID: s.userID}
	if !whole && ss.view == nil {
		held.Epoch, held.Version = ss.epoch, ss.version
	}
	state, err = s.gateway.reads.read(ctx, s.partition(), held)
	if err == nil && state.More && !state.Whole {
		return s.gateway.reads.read(ctx, s.partition(), pubsub.Held{UserID: s.userID})
	}
	return state, err
}

// sendState writes a state read from the tables. It skips a state that the client
// holds, unless inDoubt says that the client may hold other numbers.
func (ss *stateSender) sendState(state *pubsub.Snapshot, categories []string, inDoubt bool) error {
	if ss.greeted && !inDoubt && state.Epoch == ss.epoch && state.Version == ss.version {
		return nil
	}
	defer ss.session.gateway.observeStale(ss.since)
	first := !ss.greeted
	ss.greeted = true
	switch {
	case state.Whole:
		ss.epoch, ss.version = state.Epoch, state.Version
		badge := &state.Badge
		if ss.view = nil; categories != nil {
			ss.view = view.NewCategories(categories, state)
			badge = ss.view.Badge(badge)
		}
		return ss.session.send(protocol.SnapshotFrame{StateFrame: protocol.NewStateFrame("snapshot", badge, state.Conversations, true), More: state.More, Terms: ss.terms()})
	case first:
		return ss.session.send(protocol.ResumedFrame{StateFrame: ss.changesFrame(&state.Badge, state.Conversations, true), Terms: ss.terms()})
	}
	return ss.changes(&state.Badge, state.Conversations, true)
}

// terms returns the terms of the connection, for the answer to a hello.
func (ss *stateSender) terms() protocol.Terms {
	return protocol.Terms{
		PingMS:      ss.session.gateway.cfg.PingInterval.Milliseconds(),
		ExpiresInMS: ss.session.expiresIn(),
	}
}
