package gateway

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/badged/badged/pubsub"
)

// session is one client that is told its badge, over whatever link. write alone
// writes on the link; everything else only puts into the mailbox, or ends the
// session.
type session struct {
	gateway *Gateway
	link    link
	mailbox *mailbox

	// ctx ends with the session.
	ctx    context.Context
	cancel context.CancelFunc

	mu sync.Mutex
	// closing is why the session ends, nil while it does not.
	closing  *closing
	identity Identity

	// allowance is what the client may still ask for, nil before it has asked
	// for anything; most never do.
	allowance *allowance

	// greeted is closed once the client has said a hello that was accepted.
	// From then on userID is whose session it is, and epoch and version are
	// what the client said that it holds.
	greeted chan struct{}
	userID  string
	epoch   string
	version int64
}

// link is what carries the frames of a session to its client. Only the
// session's write calls it, except for cut.
type link interface {
	// write writes a frame, and its JSON, within Config.WriteTimeout.
	write(frame any, body []byte) error
	// ping shows the client a sign of life, and asks for one where it can give
	// any.
	ping() error
	// alive reports whether the client has given signs of life as it should.
	alive() bool
	// close ends the link once everything is written; c says why, nil where
	// nobody gave a reason.
	close(c *closing)
	// cut ends the link at once. It may be called at any time, and again.
	cut()
}

// newSession returns a session whose link is still to be set.
func newSession(g *Gateway) *session {
	// The request's context ends with its handler, which a session may outlive.
	ctx, cancel := context.WithCancel(context.Background())
	return &session{
		gateway: g, mailbox: newMailbox(),
		ctx: ctx, cancel: cancel,
		greeted: make(chan struct{}),
	}
}

// end asks for the end of the session; the first reason given counts.
func (s *session) end(c closing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing == nil {
		s.closing = &c
		s.cancel()
	}
}

// cut ends the session without a goodbye.
func (s *session) cut() {
	s.cancel()
	s.link.cut()
}

func (s *session) expiry() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.identity.ExpiresAt
}

// authenticate takes a token, the first or a fresh one, or returns why the
// session must end.
func (s *session) authenticate(token string) *closing {
	id, refusal := s.gateway.identify(s.ctx, token)
	if refusal != nil {
		return refusal
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.identity.UserID; before != "" && before != id.UserID {
		return &closing{code: CloseForbidden, reason: "the token is another user's"}
	}
	s.identity = id
	return nil
}

// greet takes the first frame, or returns why the session must end.
func (s *session) greet(f clientFrame) *closing {
	if f.T != frameHello {
		return &closing{code: CloseProtocol, reason: "the first frame must be a hello"}
	}
	if f.Token != "" {
		if refusal := s.authenticate(f.Token); refusal != nil {
			return refusal
		}
	}
	if s.identity.UserID == "" {
		return &closing{code: CloseBadToken, reason: "no token given"}
	}
	if refusal := s.gateway.claim(s, s.identity.UserID); refusal != nil {
		return refusal
	}
	s.userID, s.epoch, s.version = s.identity.UserID, f.Epoch, f.Version
	close(s.greeted)
	return nil
}

// write brings the client up to date, keeps it so, and says goodbye. It is the
// only one who writes frames on the connection.
func (s *session) write() {
	g := s.gateway
	defer g.running.Done()
	defer g.dismiss(s)
	defer s.cancel()

	select {
	case <-s.greeted:
	case <-s.ctx.Done():
		s.goodbye()
		return
	}
	user := pubsub.User{ID: s.userID, Partition: g.cfg.PartitionOf(s.userID)}
	joinCtx, cancel := context.WithTimeout(s.ctx, g.cfg.JoinTimeout)
	if err := g.hub.join(joinCtx, s, user); err != nil && s.ctx.Err() == nil {
		g.log.WarnContext(s.ctx, "the bus did not acknowledge in time; serving from the tables", "error", err)
	}
	cancel()
	defer func() {
		// The session's context is done, the bus's business is not.
		leaveCtx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), g.cfg.JoinTimeout)
		defer cancel()
		if err := g.hub.leave(leaveCtx, s, user.ID); err != nil {
			g.log.DebugContext(leaveCtx, "leave", "error", err)
		}
	}()

	s.mailbox.signal() // there is a hello to answer
	err := s.serve()
	if err != nil && s.ctx.Err() == nil {
		s.end(closing{code: CloseSlow, reason: "the connection is too slow"})
	}
	s.goodbye()
}

// serve writes what the mailbox has until the session ends or a write fails.
func (s *session) serve() error {
	g := s.gateway
	teller := newTeller(s)
	defer teller.due.Stop()
	ping := time.NewTicker(g.cfg.PingInterval)
	defer ping.Stop()
	expiry := time.NewTimer(time.Until(s.expiry()))
	defer expiry.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return nil
		case <-s.mailbox.filled:
			if err := teller.deliver(s.mailbox.take()); err != nil {
				return err
			}
		case <-teller.due.C:
			if err := teller.sync(); err != nil {
				return err
			}
		case <-ping.C:
			if !s.link.alive() {
				s.end(closing{code: CloseNoPong, reason: "no sign of life"})
				return nil
			}
			if err := s.link.ping(); err != nil {
				return err
			}
		case <-expiry.C:
			left := time.Until(s.expiry()) // a fresh token may have come
			if left <= 0 {
				s.end(closing{code: CloseTokenExpired, reason: ErrTokenExpired.Error()})
				return nil
			}
			expiry.Reset(left)
		}
	}
}

// send writes one frame.
func (s *session) send(frame any) error {
	b, err := json.Marshal(frame)
	if err != nil {
		return err
	}
	if err := s.link.write(frame, b); err != nil {
		return err
	}
	s.gateway.metrics.sent(frame, len(b))
	return nil
}

// goodbye says why the session ends, if anybody gave a reason, and ends the
// link. One that is broken already does not carry it.
func (s *session) goodbye() {
	s.mu.Lock()
	c := s.closing
	s.mu.Unlock()
	if c != nil {
		s.gateway.metrics.closed(c.code)
		if c.code != CloseSlow { // who is too slow gets no further frame either
			_ = s.send(byeFrame{T: "bye", Code: c.code, Reason: c.reason, ReconnectMS: c.reconnect.Milliseconds()}) // nobody else is to be told
		}
	}
	s.link.close(c)
}
