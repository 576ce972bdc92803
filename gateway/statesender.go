package gateway

import (
	"context"
	"slices"
	"time"

	"github.com/badged/badged/gateway/internal/view"
	"github.com/badged/badged/gateway/protocol"
	"github.com/badged/badged/pubsub"
)

// A read of the tables is repeated if it failed, or if a newer update arrived during the read.
// These are the shortest and the longest backoff before the repetition.
const (
	firstSyncBackoff = 5 * time.Millisecond
	lastSyncBackoff  = 2 * time.Second
	// greetingAttempts limits the failed reads in a row for a client whose hello is not
	// answered yet. After this number the gateway disconnects the client, which then
	// reconnects, perhaps to another gateway.
	greetingAttempts = 8
)

// stateSender sends one client its state. The client never gets a state that is older than its
// own, with one exception: if the client's state is ahead of the tables, the client gets a
// snapshot of the tables.
type stateSender struct {
	session *session
	// epoch and version are the client's state.
	epoch   string
	version int64
	// greeted is true if the client's hello has been answered.
	greeted bool
	// view limits what the client sees to categories; nil if it sees everything.
	view *view.Categories

	// due is the timer that schedules the next taskSend after backoff; nil until a read of the
	// tables must be repeated.
	due     *time.Timer
	backoff time.Duration
	// failures is how many reads in a row have failed.
	failures int
	// since is the append time of the oldest change that the next sync will send. It is 0 if
	// the time is unknown, or if there is no change.
	since view.DBTime
}

func newStateSender(s *session) *stateSender {
	return &stateSender{session: s, epoch: s.epoch, version: s.version}
}

// deliver writes the replies and changes that were removed from the mailbox. If it returns an
// error, the connection is broken or too slow.
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

// changes writes a frame with the changes since the client's state. whole is true if the badge
// has all categories, not only the changed categories.
func (ss *stateSender) changes(b *pubsub.Badge, conversations []pubsub.Conversation, whole bool) error {
	return ss.session.send(ss.changesFrame(b, conversations, whole))
}

func (ss *stateSender) changesFrame(b *pubsub.Badge, conversations []pubsub.Conversation, whole bool) protocol.StateFrame {
	newer := conversations
	if slices.ContainsFunc(conversations, ss.has) { // the client already has some of them
		newer = slices.DeleteFunc(slices.Clone(conversations), ss.has)
	}
	ss.epoch, ss.version = b.Epoch, b.Version
	if ss.view != nil {
		b, newer = ss.view.Changes(b, newer)
	}
	return protocol.NewStateFrame("changes", b, newer, whole)
}

// has reports whether the client already has this state of a conversation, or a newer one.
func (ss *stateSender) has(c pubsub.Conversation) bool { return c.Version <= ss.version }

// sync reads the tables and sends the client what has changed. If the read fails, or if a newer
// update arrives during the read, sync schedules another sync after a backoff.
//
// Before the read began, the client (in its hello) or the bus may have announced a state. An
// announced state was already committed, unless it was forged or Postgres has lost the commit.
// So if the read returns an older state, sync ignores the announcement.
func (ss *stateSender) sync(ctx context.Context) error {
	s := ss.session
	at, began := view.DBTimeOf(s.gateway.clock.Now()), s.gateway.hub.rooms.now()
	reading := s.mailbox.Read()
	ss.since = ss.since.Older(reading.Since)
	categories := s.currentIdentity().Categories
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
		ss.retry()
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
		ss.retry()
		return nil
	}
	ss.backoff = 0
	if !slices.Equal(categories, s.currentIdentity().Categories) { // a new token arrived during the read
		s.mailbox.Renew()
	}
	return nil
}

// settle is called after the client was sent a state that was read from the tables. It updates
// the user's account and the mailbox with this state (see hub.settle). It returns false if the
// tables must be read again.
func (ss *stateSender) settle(ctx context.Context, state *pubsub.Snapshot, began int64, whole bool, readAt view.DBTime) bool {
	s := ss.session
	joinCtx, cancel := context.WithTimeout(ctx, s.gateway.cfg.JoinTimeout)
	defer cancel()
	settled, err := s.gateway.hub.settle(joinCtx, s, state, began, whole, readAt)
	if err != nil && ctx.Err() == nil {
		s.gateway.log.WarnContext(ctx, "the bus did not acknowledge rooms in time; serving from the tables", "error", err)
	}
	return settled
}

// retry schedules taskSend after a growing backoff. When that task runs, the mailbox decides
// whether a read of the tables is still needed, since another task may have read the tables
// during the backoff. An unneeded read would be wrong: its result would reach the client before
// older updates that are still in the mailbox.
func (ss *stateSender) retry() {
	ss.backoff = min(max(2*ss.backoff, firstSyncBackoff), lastSyncBackoff)
	if ss.due == nil {
		ss.due = time.AfterFunc(ss.backoff, func() { ss.session.schedule(taskSend) })
		return
	}
	ss.due.Reset(ss.backoff)
}

// stop cancels the scheduled sync, if there is one.
func (ss *stateSender) stop() {
	if ss.due != nil {
		ss.due.Stop()
	}
}

// countAhead counts, in the metrics, a state that is ahead of the tables: the client named it in
// its hello, or the bus announced it before the tables were read, but the tables have an older
// state.
func (ss *stateSender) countAhead(state *pubsub.Snapshot, r *view.Reading) {
	m := ss.session.gateway.metrics
	ahead := state.Epoch == ss.epoch && state.Version < ss.version
	switch {
	case ahead && !ss.greeted:
		m.aheadHello.Inc()
	case r.Whole: // Gateway.compare has counted the client already
	case ahead, state.Epoch == r.HeardEpoch && state.Version < r.Heard:
		m.aheadUpdate.Inc()
	}
}

// read returns the changes since the client's state, or the whole state. A client that is
// limited to categories always gets the whole state, since the numbers of its categories
// cannot be computed from changes alone.
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

// sendState writes a state that was read from the tables. If the client already has this
// version, sendState writes nothing. But if inDoubt is true, it writes the state in any case,
// since the client may have wrong numbers for the same version.
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

// terms returns the ping interval and the time until the token expires, for the answer to a
// hello.
func (ss *stateSender) terms() protocol.Terms {
	return protocol.Terms{
		PingMS:      ss.session.gateway.cfg.PingInterval.Milliseconds(),
		ExpiresInMS: ss.session.expiresIn(),
	}
}
