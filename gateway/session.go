package gateway

import (
	"context"
	"net/netip"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/time/rate"

	"github.com/badged/badged/gateway/internal/view"
	"github.com/badged/badged/gateway/protocol"
)

// closing is the reason why a connection ends, as in its close frame.
type closing struct {
	code   int
	reason string
	// reconnect is when the client should come back; 0 is no hint.
	reconnect time.Duration
}

// session is a connected client. Only its worker (work.go) writes to the link; all
// other code puts something into the mailbox or ends the session.
type session struct {
	gateway *Gateway
	link    link
	mailbox *view.Mailbox
	worker

	mu sync.Mutex
	// over is set when the session is to end; closing is the reason, nil if there
	// is none.
	over    bool
	closing *closing
	// doing cancels what runs for the client; nil while nothing does.
	doing    map[*context.CancelFunc]struct{}
	identity Identity
	// from is the address of the client until its hello; nil if it is unknown.
	from *netip.Prefix
	// reads are to be appended again; see claims.go.
	reads []again

	// refused estimates how many commands were told to come later and have yet to
	// come. Only the reader uses it.
	refused int

	// signs limits the client's signs of life; nil before the first. Only the
	// reader uses it.
	signs *rate.Limiter

	// userID is the user, set by an accepted hello; epoch and version are the
	// state that the client held then.
	userID  string
	epoch   string
	version int64

	// place is guarded by the mutex of admission.
	place place
}

// link carries the frames of a session to its client. Only the session's worker
// calls it, except for cut.
type link interface {
	// write writes a frame, whose JSON is body, within Config.WriteTimeout.
	write(frame any, body []byte) error
	// ping sends a sign of life, and asks the client for one if the link can.
	ping() error
	// alive reports whether the client has answered recent pings.
	alive() bool
	// close ends the link after everything is written; c is the reason or nil.
	close(c *closing)
	// cut ends the link at once. It is idempotent and safe for concurrent use.
	cut()
}

// newSession returns a session without a link. No task runs before begin.
func newSession(g *Gateway) *session {
	s := &session{gateway: g, worker: worker{busy: true}}
	s.mailbox = view.NewMailbox(func() { s.schedule(taskSend) })
	return s
}

// end schedules the end of the session. The first reason counts.
func (s *session) end(c closing) {
	s.mu.Lock()
	if s.closing == nil {
		s.closing = &c
	}
	s.mu.Unlock()
	s.leave()
}

// leave schedules the end of the session without a reason of its own.
func (s *session) leave() {
	s.mu.Lock()
	s.over = true
	for cancel := range s.doing {
		(*cancel)()
	}
	s.mu.Unlock()
	s.schedule(taskEnd)
}

// during returns a context for work on behalf of the client. It ends with the
// session or when done is called. A context for the whole session would take more
// memory than the rest of it.
func (s *session) during() (ctx context.Context, done func()) {
	// The request's context ends with its handler, which a session outlives.
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

// cut ends the session at once, without a goodbye.
func (s *session) cut() {
	s.leave()
	s.link.cut()
}

// who returns the identity of the last accepted token.
func (s *session) who() Identity {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.identity
}

func (s *session) expiresAt() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.identity.ExpiresAt
}

// expiresIn returns the milliseconds until the token expires, at least 1.
func (s *session) expiresIn() int64 { return max(1, time.Until(s.expiresAt()).Milliseconds()) }

// authenticate accepts a first or fresh token, or returns why the session must
// end.
func (s *session) authenticate(ctx context.Context, token string) *closing {
	id, refusal := s.gateway.identify(ctx, token, s.address())
	if refusal != nil {
		return refusal
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.identity.UserID; before != "" && before != id.UserID {
		return &closing{code: protocol.CloseForbidden, reason: "the token is another user's"}
	}
	s.identity = id
	return nil
}

// address returns the address of the client until its hello, if it is known.
func (s *session) address() netip.Prefix {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.from == nil {
		return netip.Prefix{}
	}
	return *s.from
}

// greet takes the first frame, or returns why the session must end. On success
// the session enters admission.
func (s *session) greet(ctx context.Context, f protocol.ClientFrame) *closing {
	if f.T != protocol.FrameHello {
		return &closing{code: protocol.CloseProtocol, reason: "the first frame must be a hello"}
	}
	if f.Token != "" {
		if refusal := s.authenticate(ctx, f.Token); refusal != nil {
			return refusal
		}
	}
	if s.identity.UserID == "" {
		return &closing{code: protocol.CloseBadToken, reason: "no token given"}
	}
	s.mu.Lock()
	s.from = nil // most sessions live long, and need it no more
	s.mu.Unlock()
	if refusal := s.gateway.claim(s, s.identity.UserID); refusal != nil {
		return refusal
	}
	// From here on Disconnect finds the session. It may have come since the token was
	// verified.
	if s.gateway.revoked(s.identity) {
		return tokenRevoked()
	}
	s.userID = s.identity.UserID
	if s.identity.Categories != nil {
		return nil // it gets the whole state, and holds back no push
	}
	s.gateway.presence.enter(s, s.userID, f.Device)
	if canBeID(f.Epoch) {
		s.epoch, s.version = f.Epoch, f.Version
	}
	return nil
}

// maxIDBytes is the longest id of a conversation or device. No epoch is as long.
const maxIDBytes = 128

// canBeID reports whether text may be an id, or an epoch. It rejects text that Postgres
// cannot store, which would fail the whole shared query.
func canBeID(text string) bool {
	return text != "" && len(text) <= maxIDBytes && utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}

func (s *session) partition() int { return s.gateway.cfg.PartitionOf(s.userID) }

// send writes one frame.
func (s *session) send(frame any) error {
	b, release, err := s.gateway.buffers.Encode(frame)
	if err != nil {
		return err
	}
	defer release()
	if err := s.link.write(frame, b); err != nil {
		return err
	}
	s.gateway.metrics.sent(frame, len(b))
	return nil
}

// goodbye sends the reason for the end, if there is one, and closes the link.
func (s *session) goodbye() {
	s.mu.Lock()
	c := s.closing
	s.mu.Unlock()
	if c != nil {
		s.gateway.metrics.closed(c.code)
		if c.code != protocol.CloseSlow { // a slow client cannot take another frame
			_ = s.send(protocol.ByeFrame{T: "bye", Code: c.code, Reason: c.reason, ReconnectMS: c.reconnect.Milliseconds()}) // the link ends anyway
		}
	}
	s.link.close(c)
}
