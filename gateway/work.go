package gateway

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/badged/badged/pubsub"
)

// duty is something that is to be done for a client, or several such things.
type duty uint8

const (
	dutyGreet duty = 1 << iota // answer the hello
	dutyTell                   // the mailbox may have something, or waits for the tables
	dutyCheck                  // ask whether the client is there, look whether its token ends
	dutyEnd                    // say goodbye; nothing follows
)

// worker does a session's duties: one goroutine that lives while there is
// anything to do. A client to whom nothing happens, as to most at any moment,
// thus has none, and keeps no stack of the depth that reading the tables takes.
type worker struct {
	asking sync.Mutex
	asked  duty
	// busy is set while the goroutine lives, before the session begins, and for
	// good once it has said goodbye.
	busy bool

	// The rest is the goroutine's own.

	// teller is nil until the session is one of its user's.
	teller *teller
	// joined is set once the hub knows the session.
	joined bool
	// check asks for dutyCheck: when the next ping is due, at pingAt, and when the
	// token ends. Set together with teller.
	check  *time.Timer
	pingAt time.Time
}

// begin has what was asked for already, and what will be, done.
func (s *session) begin() {
	s.asking.Lock()
	defer s.asking.Unlock()
	if s.busy = s.asked != 0; s.busy {
		go s.work()
	}
}

// ask has duties done soon. It does not block.
func (s *session) ask(d duty) {
	s.asking.Lock()
	defer s.asking.Unlock()
	s.asked |= d
	if !s.busy {
		s.busy = true
		go s.work()
	}
}

// work does what is asked until nothing more is.
func (s *session) work() {
	for {
		s.asking.Lock()
		d := s.asked
		s.asked = 0
		s.busy = d != 0
		s.asking.Unlock()
		if d == 0 {
			return
		}
		ctx, done := s.during()
		if d&dutyEnd != 0 {
			s.finish(ctx)
			done()
			return // still busy: whatever is asked from now on, nobody does
		}
		if err := s.do(ctx, d); err != nil {
			s.fail(err)
		}
		done()
	}
}

// do does duties other than the last. Its errors are those of writing.
func (s *session) do(ctx context.Context, d duty) error {
	if d&dutyGreet != 0 {
		s.join(ctx)
	}
	if s.teller == nil {
		return nil // the hello is still to come, and will be answered from the tables
	}
	if d&(dutyGreet|dutyTell) != 0 {
		if err := s.teller.deliver(ctx, s.mailbox.take()); err != nil {
			return err
		}
	}
	if d&dutyCheck != 0 {
		return s.checkClient()
	}
	return nil
}

// fail ends the session since a frame could not be written: in time, or at all.
func (s *session) fail(err error) {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		s.end(closing{code: CloseSlow, reason: "the connection is too slow"})
		return
	}
	s.leave() // there is no one left to be told why
}

// join makes the session one of its user's.
func (s *session) join(ctx context.Context) {
	g := s.gateway
	joinCtx, cancel := context.WithTimeout(ctx, g.cfg.JoinTimeout)
	defer cancel()
	user := pubsub.User{ID: s.userID, Partition: s.partition()}
	s.joined = true
	if err := g.hub.join(joinCtx, s, user); err != nil && ctx.Err() == nil {
		g.log.WarnContext(ctx, "the bus did not acknowledge in time; serving from the tables", "error", err)
	}
	s.teller = newTeller(s)
	s.pingAt = time.Now().Add(g.cfg.PingInterval)
	s.check = time.AfterFunc(s.untilCheck(), func() { s.ask(dutyCheck) })
}

// untilCheck is how long until the client is to be looked after.
func (s *session) untilCheck() time.Duration {
	return min(time.Until(s.pingAt), time.Until(s.expiresAt()))
}

// checkClient asks the client whether it is there. It ends the session where the
// client has not said a word since it was asked twice, and with its token unless
// a fresh one has come.
func (s *session) checkClient() error {
	now := time.Now()
	if !now.Before(s.expiresAt()) {
		s.end(closing{code: CloseTokenExpired, reason: ErrTokenExpired.Error()})
		return nil
	}
	if due := !now.Before(s.pingAt); due {
		if !s.link.alive() {
			s.end(closing{code: CloseNoPong, reason: "no sign of life"})
			return nil
		}
		if err := s.link.ping(); err != nil {
			return err
		}
		s.pingAt = now.Add(s.gateway.cfg.PingInterval)
	}
	s.check.Reset(s.untilCheck())
	return nil
}

// finish says goodbye, and gives back all that the session has.
func (s *session) finish(ctx context.Context) {
	g := s.gateway
	defer g.running.Done()
	defer g.dismiss(s)
	if s.teller != nil {
		s.check.Stop()
		s.teller.stop()
	}
	g.lobby.leave(s)
	s.goodbye()
	if s.joined {
		// The session is over, the bus's business is not.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.cfg.JoinTimeout)
		defer cancel()
		if err := g.hub.leave(ctx, s, s.userID); err != nil {
			g.log.DebugContext(ctx, "leave", "error", err)
		}
	}
}
