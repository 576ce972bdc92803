package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/gorilla/websocket"
)

// socket is the WebSocket of a session. A goroutine of its own reads what the
// client says, the only one that an idle client has; the session's worker
// writes.
type socket struct {
	session *session
	conn    *websocket.Conn

	mu sync.Mutex
	// heardAt is when the client was last heard of.
	heardAt time.Time

	// silent is closed once nothing more is read from the connection.
	silent chan struct{}
}

func newSocket(s *session, conn *websocket.Conn) *socket {
	return &socket{session: s, conn: conn, heardAt: time.Now(), silent: make(chan struct{})}
}

// refuse says goodbye on a connection that never became a session.
func (k *socket) refuse(c closing) {
	k.session.end(c)
	go k.exhaust()
	k.session.goodbye()
}

// exhaust reads whatever comes until the connection ends. A connection that is
// closed with something unread is reset, and the client may not see why.
func (k *socket) exhaust() {
	defer close(k.silent)
	for {
		_, _, err := k.conn.NextReader()
		if errors.Is(err, websocket.ErrReadLimit) {
			// The rest of the frame is still to come, and no frame after it.
			_, _ = io.Copy(io.Discard, k.conn.NetConn())
		}
		if err != nil {
			return
		}
	}
}

func (k *socket) heard() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.heardAt = time.Now()
}

// alive implements link.
func (k *socket) alive() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return time.Since(k.heardAt) <= 2*k.session.gateway.cfg.PingInterval
}

// read takes the client's frames until the connection ends.
func (k *socket) read(token string, speaksProtocol bool) {
	if !k.welcome(token, speaksProtocol) {
		k.fallSilent()
		return
	}
	k.session.gateway.lobby.enter(k.session)
	// To check a token takes a deep stack, which a goroutine then keeps.
	go k.listen()
}

// fallSilent ends the session from the side of its reader.
func (k *socket) fallSilent() {
	defer k.session.gateway.running.Done()
	k.session.leave()
	k.exhaust()
}

// welcome returns once the client has said a hello that was accepted, and false
// where the session ends instead.
func (k *socket) welcome(token string, speaksProtocol bool) bool {
	s := k.session
	k.conn.SetReadLimit(MaxFrameBytes)
	k.conn.SetPongHandler(func(string) error { k.heard(); return nil })
	k.conn.SetPingHandler(func(data string) error {
		k.heard()
		if refusal := k.session.pinged(); refusal != nil {
			k.session.end(*refusal)
			return errors.New(refusal.reason) // which ends the read
		}
		err := k.conn.WriteControl(websocket.PongMessage, []byte(data), k.deadline())
		if errors.Is(err, websocket.ErrCloseSent) {
			return nil
		}
		return err
	})

	if !speaksProtocol {
		s.end(closing{code: CloseNoProtocol, reason: "offer the subprotocol " + Protocol})
		return false
	}
	if token != "" {
		ctx, done := s.during()
		refusal := s.authenticate(ctx, token)
		done()
		if refusal != nil {
			s.end(*refusal)
			return false
		}
	}
	_ = k.conn.SetReadDeadline(time.Now().Add(s.gateway.cfg.HelloTimeout)) // fails only on a closed one, and then so does the read
	payload, ok := k.next()
	if !ok {
		return false
	}
	_ = k.conn.SetReadDeadline(time.Time{}) // from here on pings watch over silence
	return k.take(payload, s.greet)
}

// listen takes what a client says that has been greeted. Whatever a frame takes
// is done aside, so that the stack on which the client is waited for stays
// small.
func (k *socket) listen() {
	defer k.fallSilent()
	for {
		payload, ok := k.next()
		if !ok {
			return
		}
		done := make(chan bool)
		go func() { done <- k.take(payload, k.session.handle) }()
		if !<-done {
			return
		}
	}
}

// next returns the next frame as it came; ok is false where the session ends.
func (k *socket) next() (payload []byte, ok bool) {
	kind, payload, err := k.conn.ReadMessage()
	if err != nil {
		k.silence(err)
		return nil, false
	}
	k.heard()
	if kind != websocket.TextMessage {
		k.session.end(closing{code: CloseProtocol, reason: "frames must be text"})
		return nil, false
	}
	return payload, true
}

// silence ends the session where its client took too long to say hello, said too
// much, or does not answer the kernel's probes either, which is a timeout too.
// Others from whom nothing can be read are gone.
func (k *socket) silence(err error) {
	var timeout net.Error
	switch {
	case errors.As(err, &timeout) && timeout.Timeout() && k.session.userID == "":
		k.session.end(closing{code: CloseProtocol, reason: "no hello in time"})
	case errors.As(err, &timeout) && timeout.Timeout():
		k.session.end(closing{code: CloseNoPong, reason: "no sign of life"})
	case errors.Is(err, websocket.ErrReadLimit): // of which the library does not always tell
		k.session.end(closing{code: websocket.CloseMessageTooBig, reason: "a frame may have " + strconv.Itoa(MaxFrameBytes) + " bytes"})
	}
}

// take understands a frame and has it carried out; false where the session ends
// with it.
func (k *socket) take(payload []byte, carryOut func(context.Context, clientFrame) *closing) bool {
	s := k.session
	if !utf8.Valid(payload) {
		s.end(closing{code: websocket.CloseInvalidFramePayloadData, reason: "text must be UTF-8"})
		return false
	}
	f, err := decodeFrame(payload)
	if err != nil {
		s.end(closing{code: CloseProtocol, reason: err.Error()})
		return false
	}
	ctx, done := s.during()
	defer done()
	if refusal := carryOut(ctx, f); refusal != nil {
		s.end(*refusal)
		return false
	}
	return true
}

func (k *socket) deadline() time.Time {
	return time.Now().Add(k.session.gateway.cfg.WriteTimeout)
}

// write implements link.
func (k *socket) write(_ any, body []byte) error {
	if err := k.conn.SetWriteDeadline(k.deadline()); err != nil {
		return err
	}
	return k.conn.WriteMessage(websocket.TextMessage, body)
}

// ping implements link. There is one for browsers, which cannot see pings, and
// one for clients that do not answer frames they have no use for.
func (k *socket) ping() error {
	if err := k.session.send(bareFrame{framePing}); err != nil {
		return err
	}
	return k.conn.WriteControl(websocket.PingMessage, nil, k.deadline())
}

// closeTimeout is how long the closing handshake may take.
const closeTimeout = time.Second

// close implements link. It gives the client a moment to close from its side.
func (k *socket) close(c *closing) {
	defer k.cut()
	if c != nil {
		message := websocket.FormatCloseMessage(c.code, cutReason(c.reason))
		_ = k.conn.WriteControl(websocket.CloseMessage, message, time.Now().Add(closeTimeout)) // there is no one else to tell
	}
	moment := time.NewTimer(closeTimeout)
	defer moment.Stop()
	select {
	case <-k.silent:
	case <-moment.C:
	}
}

// cut implements link.
func (k *socket) cut() { _ = k.conn.Close() } // what it fails to close is closed

// cutReason bounds a reason to what a close frame can hold.
func cutReason(reason string) string {
	const most = 123
	for len(reason) > most {
		_, size := utf8.DecodeLastRuneInString(reason)
		reason = reason[:len(reason)-size]
	}
	return reason
}
