package gateway

import (
	"context"
	"time"

	"github.com/badged/badged/pubsub"
)

// Between reads of tables that are away or not as new as what the bus brought.
const (
	firstSyncBackoff = 5 * time.Millisecond
	lastSyncBackoff  = 2 * time.Second
	// greetingAttempts is how often the state is read for a client that has
	// none yet, before it is sent away to try elsewhere.
	greetingAttempts = 8
)

// teller tells one client its state. It knows what the client holds, and never
// tells it anything older.
type teller struct {
	session *session
	// epoch and version are what the client holds.
	epoch   string
	version int64
	// greeted is set once the client's hello is answered.
	greeted bool

	// due has the tables read again, after backoff; nil until that is needed.
	due     *time.Timer
	backoff time.Duration
	// failures is how many reads in a row have failed.
	failures int
}

func newTeller(s *session) *teller {
	return &teller{session: s, epoch: s.epoch, version: s.version}
}

// deliver writes what was in the mailbox. An error means that the connection
// is of no more use.
func (t *teller) deliver(ctx context.Context, d delivery) error {
	for _, frame := range d.replies {
		if err := t.session.send(frame); err != nil {
			return err
		}
	}
	if d.badge != nil {
		if err := t.changes(d.badge, d.conversations); err != nil {
			return err
		}
		if trace := t.session.gateway.cfg.Trace; trace != nil && d.traced != nil {
			trace(d.traced.parent, d.traced.came, time.Now())
		}
	}
	if d.sync {
		return t.sync(ctx)
	}
	return nil
}

// changes writes what changed since what the client holds.
func (t *teller) changes(b *pubsub.Badge, conversations []pubsub.Conversation) error {
	return t.session.send(t.changesFrame(b, conversations))
}

func (t *teller) changesFrame(b *pubsub.Badge, conversations []pubsub.Conversation) stateFrame {
	newer := conversations[:0:0]
	for _, c := range conversations {
		if c.Version > t.version { // what came by another way is not told twice
			newer = append(newer, c)
		}
	}
	t.epoch, t.version = b.Epoch, b.Version
	return newStateFrame("changes", b, newer)
}

// sync brings the client up to date from the tables. Where they cannot be read,
// or are not yet as new as what was heard of, it is due again after a while.
func (t *teller) sync(ctx context.Context) error {
	s := t.session
	state, err := t.read(ctx)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		s.gateway.log.WarnContext(ctx, "cannot read the state of a client's user", "error", err)
		if t.failures++; !t.greeted && t.failures == greetingAttempts {
			s.end(*comeBack("the state cannot be read right now"))
			return nil
		}
		t.again()
		return nil
	}
	t.failures = 0
	s.gateway.lobby.leave(s)
	if err := t.tell(&state); err != nil {
		return err
	}
	if t.version != state.Version || !s.mailbox.synced(state.Epoch, state.Version) {
		t.again()
		return nil
	}
	t.backoff = 0
	return nil
}

// again makes a sync due after a while, which grows. Whether one is needed then,
// the mailbox knows: what asks for something else meanwhile has it read too, and
// a read while the mailbox takes updates would overtake them.
func (t *teller) again() {
	t.backoff = min(max(2*t.backoff, firstSyncBackoff), lastSyncBackoff)
	if t.due == nil {
		t.due = time.AfterFunc(t.backoff, func() { t.session.ask(dutyTell) })
		return
	}
	t.due.Reset(t.backoff)
}

// stop makes no sync due any more.
func (t *teller) stop() {
	if t.due != nil {
		t.due.Stop()
	}
}

// read reads what the client lacks.
func (t *teller) read(ctx context.Context) (pubsub.Snapshot, error) {
	s := t.session
	ctx, cancel := context.WithTimeout(ctx, s.gateway.cfg.ReadTimeout)
	defer cancel()
	held := pubsub.Held{UserID: s.userID, Epoch: t.epoch, Version: t.version}
	state, err := s.gateway.reads.read(ctx, s.partition(), held)
	if err == nil && state.More && !state.Whole {
		return s.gateway.reads.read(ctx, s.partition(), pubsub.Held{UserID: s.userID})
	}
	return state, err
}

// tell writes a state that was read, unless the client holds as much.
func (t *teller) tell(state *pubsub.Snapshot) error {
	if t.greeted && state.Epoch == t.epoch && state.Version <= t.version {
		return nil
	}
	first := !t.greeted
	t.greeted = true
	switch {
	case state.Whole:
		t.epoch, t.version = state.Epoch, state.Version
		return t.session.send(snapshotFrame{newStateFrame("snapshot", &state.Badge, state.Conversations), state.More, t.terms()})
	case first:
		return t.session.send(resumedFrame{t.changesFrame(&state.Badge, state.Conversations), t.terms()})
	}
	return t.changes(&state.Badge, state.Conversations)
}

// terms are what a client is told of its connection.
func (t *teller) terms() connectionTerms {
	return connectionTerms{
		PingMS:    t.session.gateway.cfg.PingInterval.Milliseconds(),
		ExpiresAt: t.session.expiresAt().UTC().Truncate(time.Second),
	}
}
