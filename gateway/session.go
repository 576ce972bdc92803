package gateway

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/time/rate"
)

// session is one client that is told its badge, over whatever link. Its worker
// (work.go) alone writes on the link; everything else only puts into the
// mailbox, or ends the session.
type session struct {
	gateway *Gateway
	link    link
	mailbox *mailbox
	worker

	mu sync.Mutex
	// over is set once the session is to end; closing is why, nil where nobody
	// gave a reason.
	over    bool
	closing *closing
	// doing ends what is done for the client at the moment; nil where nothing is.
	doing    map[*context.CancelFunc]struct{}
	identity Identity

	// allowance is what the client may still ask for, nil before it has asked
	// for anything; most never do.
	allowance *allowance

	// pings limits those of the client, nil before the first; few clients ask.
	pings *rate.Limiter

	// userID is whose session it is, once the client has said a hello that was
	// accepted, and epoch and version are what it said that it holds.
	userID  string
	epoch   string
	version int64

	// place is the lobby's.
	place place
}

// link is what carries the frames of a session to its client. Only the
// session's worker calls it, except for cut.
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

// newSession returns a session whose link is still to be set. Nothing is done for
// it before it begins.
func newSession(g *Gateway) *session {
	s := &session{gateway: g, worker: worker{busy: true}}
	s.mailbox = newMailbox(func() { s.ask(dutyTell) })
	return s
}

// end asks for the end of the session; the first reason given counts.
func (s *session) end(c closing) {
	s.mu.Lock()
	if s.closing == nil {
		s.closing = &c
	}
	s.mu.Unlock()
	s.leave()
}

// leave asks for the end of the session, for no other reason than those that
// end was given.
func (s *session) leave() {
	s.mu.Lock()
	s.over = true
	for cancel := range s.doing {
		(*cancel)()
	}
	s.mu.Unlock()
	s.ask(dutyEnd)
}

// during returns a context for something that is done for the client; it ends
// with the session, and when done is called. A context that lasts as long as
// the session would take more memory than the rest of it.
func (s *session) during() (ctx context.Context, done func()) {
	// That of the request ends with its handler, which a session may outlive.
	ctx, cancel := context.WithCancel(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		cancel()
	}
	if s.doing == nil {
		s.doing = map[*context.CancelFunc]struct{}{}
	}
	s.doing[&cancel] = struct{}{}
	return ctx, func() {
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		if delete(s.doing, &cancel); len(s.doing) == 0 {
			s.doing = nil
		}
	}
}

// cut ends the session without a goodbye.
func (s *session) cut() {
	s.leave()
	s.link.cut()
}

func (s *session) expiresAt() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.identity.ExpiresAt
}

// authenticate takes a token, the first or a fresh one, or returns why the
// session must end.
func (s *session) authenticate(ctx context.Context, token string) *closing {
	id, refusal := s.gateway.identify(ctx, token)
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

// greet takes the first frame, after which the session is to enter the lobby, or
// returns why it must end.
func (s *session) greet(ctx context.Context, f clientFrame) *closing {
	if f.T != frameHello {
		return &closing{code: CloseProtocol, reason: "the first frame must be a hello"}
	}
	if f.Token != "" {
		if refusal := s.authenticate(ctx, f.Token); refusal != nil {
			return refusal
		}
	}
	if s.identity.UserID == "" {
		return &closing{code: CloseBadToken, reason: "no token given"}
	}
	if refusal := s.gateway.claim(s, s.identity.UserID); refusal != nil {
		return refusal
	}
	s.userID = s.identity.UserID
	if canBeEpoch(f.Epoch) {
		s.epoch, s.version = f.Epoch, f.Version
	}
	return nil
}

// maxEpochBytes is more than any epoch has.
const maxEpochBytes = 128

// canBeEpoch reports whether a client can have an epoch from a server. Text that
// tables cannot hold must not come before them: a query with it fails, and with
// it everybody who is answered by the same one.
func canBeEpoch(text string) bool {
	return len(text) <= maxEpochBytes && utf8.ValidString(text) && !strings.ContainsRune(text, 0)
}

func (s *session) partition() int { return s.gateway.cfg.PartitionOf(s.userID) }

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
