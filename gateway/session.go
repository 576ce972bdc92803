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

// closing says why a connection ends, as in the close frame.
type closing struct {
	code   int
	reason string
	// reconnect is the delay after which the client should reconnect. If it is 0, the client is
	// not told a delay.
	reconnect time.Duration
}

// session is a connected client. Only its worker (work.go) writes to the link. All other code
// either adds something to the mailbox, or ends the session.
type session struct {
	gateway *Gateway
	link    link
	mailbox *view.Mailbox
	worker

	mu sync.Mutex
	// ended is true if the session must end. closing is the reason; nil if the client gets no
	// reason.
	ended   bool
	closing *closing
	// contexts holds the cancel functions of the open contexts of newContext; nil if there are
	// none.
	contexts map[*context.CancelFunc]struct{}
	identity Identity
	// from is the network of the client, for Config.BadToken. It is nil if the network is
	// unknown, and after the hello.
	from *netip.Prefix
	// reads are the reads that the worker must append again: see claims.go.
	reads []repeatedRead

	// refused estimates how many refused commands the client has not repeated yet. Each refused
	// command adds one, and each accepted command subtracts one. Only the goroutine that reads
	// frames uses it.
	refused int

	// signs limits the rate of the client's pings and pongs; nil before the first ping or pong.
	// Only the goroutine that reads frames uses it.
	signs *rate.Limiter

	// userID is set when the hello is accepted. epoch and version are the client's state in its
	// hello.
	userID  string
	epoch   string
	version int64

	// place is guarded by the mutex of admission.
	place place
}

// link carries the frames of a session to its client. After the first task has begun, only the
// session's worker calls the methods of link, except cut.
type link interface {
	// write writes a frame, whose JSON is body, within Config.WriteTimeout.
	write(frame any, body []byte) error
	// ping shows the client that the connection works. On a WebSocket it also asks the client
	// for an answer.
	ping() error
	// alive reports whether the client has answered recent pings; it is always true for a link
	// that cannot receive.
	alive() bool
	// close ends the link after all writes; c is the reason or nil.
	close(c *closing)
	// cut ends the link at once. It is idempotent and safe for concurrent use.
	cut()
}

// newSession returns a session without a link. The session runs no task before begin is called.
func newSession(g *Gateway) *session {
	s := &session{gateway: g, worker: worker{busy: true}}
	s.mailbox = view.NewMailbox(func() { s.schedule(taskSend) })
	return s
}

// end schedules the end of the session. The client gets `c` as the reason. If end is called
// several times, the client gets the reason of the first call.
func (s *session) end(c closing) {
	s.mu.Lock()
	if s.closing == nil {
		s.closing = &c
	}
	s.mu.Unlock()
	s.leave()
}

// leave schedules the end of the session without giving a reason.
func (s *session) leave() {
	s.mu.Lock()
	s.ended = true
	for cancel := range s.contexts {
		(*cancel)()
	}
	s.mu.Unlock()
	s.schedule(taskEnd)
}

// newContext returns a context for work on behalf of the client. The context ends with the session,
// or when `done` is called. A session has no permanent context, since that would use more
// memory than the rest of an idle session.
func (s *session) newContext() (ctx context.Context, done func()) {
	// Do not use the context of the request: it ends when the handler returns, but the session
	// goes on.
	ctx, cancel := context.WithCancel(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		cancel()
	}
	if s.contexts == nil {
		s.contexts = map[*context.CancelFunc]struct{}{}
	}
	s.contexts[&cancel] = struct{}{}
	return ctx, func() {
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		if delete(s.contexts, &cancel); len(s.contexts) == 0 {
			s.contexts = nil
		}
	}
}

// cut ends the session at once, without a bye frame.
func (s *session) cut() {
	s.leave()
	s.link.cut()
}

// currentIdentity returns the identity of the last accepted token.
func (s *session) currentIdentity() Identity {
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

// authenticate verifies the first token of the session, or a new token. If the token is
// refused, it returns a closing with the reason.
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

// address returns the network of the client. After the hello, or if the network is unknown, it
// returns the zero Prefix.
func (s *session) address() netip.Prefix {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.from == nil {
		return netip.Prefix{}
	}
	return *s.from
}

// greet handles the first frame of a client, which must be a hello. If the session must end, it
// returns a closing with the reason. If greet returns nil, the caller must call
// admission.enter.
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
	s.from = nil // free the memory, since most sessions last long
	s.mu.Unlock()
	if refusal := s.gateway.claim(s, s.identity.UserID); refusal != nil {
		return refusal
	}
	// From here on Disconnect finds the session. But the token may have been revoked between
	// its verification and this point.
	if s.gateway.revoked(s.identity) {
		return tokenRevoked()
	}
	s.userID = s.identity.UserID
	if s.identity.Categories != nil {
		return nil // Ignore the hello's state and device: the client gets the whole state, and the device still gets pushes.
	}
	s.gateway.presence.enter(s, s.userID, f.Device)
	if canBeID(f.Epoch) {
		s.epoch, s.version = f.Epoch, f.Version
	}
	return nil
}

// maxIDBytes is the maximum size of the id of a conversation or device in bytes. Epochs are
// shorter.
const maxIDBytes = 128

// canBeID reports whether text may be an id or an epoch. It rejects text that Postgres cannot
// store: one such text would fail a query that serves many users.
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

// goodbye closes the link. If the session has a closing, goodbye first sends it in a bye frame.
func (s *session) goodbye() {
	s.mu.Lock()
	c := s.closing
	s.mu.Unlock()
	if c != nil {
		s.gateway.metrics.closed(c.code)
		if c.code != protocol.CloseSlow { // a slow client cannot receive another frame
			_ = s.send(protocol.ByeFrame{T: "bye", Code: c.code, Reason: c.reason, ReconnectMS: c.reconnect.Milliseconds()}) // the link ends anyway
		}
	}
	s.link.close(c)
}
