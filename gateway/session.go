package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/gorilla/websocket"

	"github.com/badged/badged/pubsub"
)

// session is one connection. Two goroutines serve it: read takes the frames of
// the client, write alone writes on the connection. Everything else only puts
// into the mailbox, or ends the session.
type session struct {
	gateway *Gateway
	conn    *websocket.Conn
	mailbox *mailbox

	// ctx ends with the session.
	ctx    context.Context
	cancel context.CancelFunc

	mu sync.Mutex
	// closing is why the session ends, nil while it does not.
	closing *closing
	// heardAt is when the client was last heard of.
	heardAt  time.Time
	identity Identity

	// greeted is closed once the client has said a hello that was accepted.
	// From then on userID is whose session it is, and epoch and version are
	// what the client said that it holds.
	greeted chan struct{}
	userID  string
	epoch   string
	version int64

	// silent is closed once nothing more is read from the connection.
	silent chan struct{}
}

func newSession(g *Gateway, conn *websocket.Conn) *session {
	// The request's context ends with its handler, which the session outlives.
	ctx, cancel := context.WithCancel(context.Background())
	return &session{
		gateway: g, conn: conn, mailbox: newMailbox(),
		ctx: ctx, cancel: cancel,
		heardAt: time.Now(),
		greeted: make(chan struct{}),
		silent:  make(chan struct{}),
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
	_ = s.conn.Close() // what it fails to close is closed
}

// refuse says goodbye on a connection that never became a session.
func (s *session) refuse(c closing) {
	s.end(c)
	go s.exhaust()
	s.goodbye()
	s.linger()
	s.cut()
}

// exhaust reads whatever comes until the connection ends. A connection that is
// closed with something unread is reset, and the client may not see why.
func (s *session) exhaust() {
	defer close(s.silent)
	for {
		_, _, err := s.conn.NextReader()
		if errors.Is(err, websocket.ErrReadLimit) {
			// The rest of the frame is still to come, and no frame after it.
			_, _ = io.Copy(io.Discard, s.conn.NetConn())
		}
		if err != nil {
			return
		}
	}
}

// linger gives the client a moment to close from its side.
func (s *session) linger() {
	moment := time.NewTimer(closeTimeout)
	defer moment.Stop()
	select {
	case <-s.silent:
	case <-moment.C:
	}
}

func (s *session) heard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heardAt = time.Now()
}

func (s *session) silence() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.heardAt)
}

func (s *session) expiry() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.identity.ExpiresAt
}

// read takes the client's frames until the connection ends.
func (s *session) read(token string, speaksProtocol bool) {
	defer s.gateway.running.Done()
	defer s.exhaust()
	defer s.cancel()

	s.conn.SetReadLimit(MaxFrameBytes)
	s.conn.SetPongHandler(func(string) error { s.heard(); return nil })
	s.conn.SetPingHandler(func(data string) error {
		s.heard()
		err := s.conn.WriteControl(websocket.PongMessage, []byte(data), time.Now().Add(s.gateway.cfg.WriteTimeout))
		if errors.Is(err, websocket.ErrCloseSent) {
			return nil
		}
		return err
	})

	if !speaksProtocol {
		s.end(closing{code: CloseNoProtocol, reason: "offer the subprotocol " + Protocol})
		return
	}
	if token != "" && !s.authenticate(token) {
		return
	}
	_ = s.conn.SetReadDeadline(time.Now().Add(s.gateway.cfg.HelloTimeout)) // fails only on a closed one, and then so does the read
	f, ok := s.next()
	if !ok || !s.greet(f) {
		return
	}
	_ = s.conn.SetReadDeadline(time.Time{}) // from here on write watches over silence
	close(s.greeted)

	for {
		f, ok := s.next()
		if !ok {
			return
		}
		s.handle(f)
	}
}

// next returns the next frame; ok is false where the session ends.
func (s *session) next() (f clientFrame, ok bool) {
	kind, payload, err := s.conn.ReadMessage()
	var timeout net.Error
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		s.end(closing{code: CloseProtocol, reason: "no hello in time"})
		return f, false
	case err != nil:
		return f, false
	case kind != websocket.TextMessage:
		s.end(closing{code: CloseProtocol, reason: "frames must be text"})
		return f, false
	case !utf8.Valid(payload):
		s.end(closing{code: websocket.CloseInvalidFramePayloadData, reason: "text must be UTF-8"})
		return f, false
	}
	s.heard()
	if f, err = decodeFrame(payload); err != nil {
		s.end(closing{code: CloseProtocol, reason: err.Error()})
		return f, false
	}
	return f, true
}

// authenticate takes a token, the first or a fresh one, and ends the session
// where it is no good.
func (s *session) authenticate(token string) bool {
	id, err := s.gateway.cfg.Authenticator.Authenticate(s.ctx, token)
	if errors.Is(err, ErrTokenExpired) {
		s.end(closing{code: CloseTokenExpired, reason: ErrTokenExpired.Error()})
		return false
	}
	if err != nil {
		s.end(closing{code: CloseBadToken, reason: err.Error()})
		return false
	}
	s.mu.Lock()
	before := s.identity.UserID
	if before == "" || before == id.UserID {
		s.identity = id
	}
	s.mu.Unlock()
	if before != "" && before != id.UserID {
		s.end(closing{code: CloseForbidden, reason: "the token is another user's"})
		return false
	}
	return true
}

// greet takes the first frame.
func (s *session) greet(f clientFrame) bool {
	if f.T != frameHello {
		s.end(closing{code: CloseProtocol, reason: "the first frame must be a hello"})
		return false
	}
	if f.Token != "" && !s.authenticate(f.Token) {
		return false
	}
	if s.identity.UserID == "" {
		s.end(closing{code: CloseBadToken, reason: "no token given"})
		return false
	}
	s.userID, s.epoch, s.version = s.identity.UserID, f.Epoch, f.Version
	return true
}

// write brings the client up to date, keeps it so, and says goodbye. It is the
// only one who writes frames on the connection.
func (s *session) write() {
	g := s.gateway
	defer g.running.Done()
	defer g.dismiss(s)
	defer s.cut()
	defer s.linger()

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
			if s.silence() > 2*g.cfg.PingInterval {
				s.end(closing{code: CloseNoPong, reason: "no sign of life"})
				return nil
			}
			// One for browsers, which cannot see pings, one for clients that
			// do not answer frames they have no use for.
			if err := s.send(bareFrame{framePing}); err != nil {
				return err
			}
			if err := s.conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(g.cfg.WriteTimeout)); err != nil {
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
	if err := s.conn.SetWriteDeadline(time.Now().Add(s.gateway.cfg.WriteTimeout)); err != nil {
		return err
	}
	if err := s.conn.WriteMessage(websocket.TextMessage, b); err != nil {
		return err
	}
	s.gateway.metrics.sent(frame, len(b))
	return nil
}

// goodbye says why the session ends, if anybody gave a reason. A connection
// that is broken already does not hear it.
func (s *session) goodbye() {
	s.mu.Lock()
	c := s.closing
	s.mu.Unlock()
	if c == nil {
		return
	}
	s.gateway.metrics.closed(c.code)
	if c.code != CloseSlow { // who is too slow gets no further frame either
		if s.send(byeFrame{T: "bye", Code: c.code, Reason: c.reason, ReconnectMS: c.reconnect.Milliseconds()}) != nil {
			return
		}
	}
	message := websocket.FormatCloseMessage(c.code, cutReason(c.reason))
	_ = s.conn.WriteControl(websocket.CloseMessage, message, time.Now().Add(closeTimeout)) // there is no one else to tell
}

// closeTimeout is how long the closing handshake may take.
const closeTimeout = time.Second

// cutReason bounds a reason to what a close frame can hold.
func cutReason(reason string) string {
	const most = 123
	for len(reason) > most {
		_, size := utf8.DecodeLastRuneInString(reason)
		reason = reason[:len(reason)-size]
	}
	return reason
}
