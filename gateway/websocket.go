package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/gorilla/websocket"

	"github.com/badged/badged/gateway/protocol"
	"github.com/badged/badged/internal/base/limit"
)

// bearerProtocol is the prefix of a subprotocol that contains a token. Browsers send their
// token in this way, since scripts in browsers cannot set the header Authorization.
const bearerProtocol = "bearer."

// webSocketVersion is the protocol version of RFC 6455.
const webSocketVersion = "13"

// refusedOriginLogInterval is the minimum time between two log lines about refused origins.
const refusedOriginLogInterval = 10 * time.Second

// refuseUpgrade answers a request that cannot be upgraded. If the origin is not allowed, the
// gateway also logs the origin, since scripts in a browser cannot read the answer.
func (g *Gateway) refuseUpgrade(w http.ResponseWriter, r *http.Request, status int, reason error) {
	detail := reason.Error()
	if status == http.StatusForbidden { // the upgrader returns this status only for a wrong origin
		g.foreign.Do(func() {
			g.log.WarnContext(r.Context(), "refused a connection from a page whose origin is not allowed; if the page is yours, allow its origin with --allowed-origins", "origin", r.Header.Get("Origin"), "host", r.Host)
		})
		detail = "the origin of this page is not allowed; if the page is yours, allow its origin with --allowed-origins"
	}
	answerProblem(w, &Refusal{Status: status, Detail: detail})
}

// ServeHTTP upgrades a request to a WebSocket. It reports a bad token or subprotocol by a
// close code after the upgrade, since browsers hide HTTP statuses from scripts.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !websocket.IsWebSocketUpgrade(r) || r.Header.Get("Sec-WebSocket-Version") != webSocketVersion {
		w.Header().Set("Upgrade", "websocket")
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Sec-WebSocket-Version", webSocketVersion)
		answerProblem(w, &Refusal{Status: http.StatusUpgradeRequired, Detail: "this is a WebSocket endpoint: connect with a WebSocket client and the subprotocol " + protocol.Subprotocol})
		return
	}
	protocols := websocket.Subprotocols(r)
	speaksProtocol := slices.Contains(protocols, protocol.Subprotocol)
	var chosen http.Header
	switch {
	case speaksProtocol:
		// Use the constant, not the equal string from the request: that string shares memory
		// with all headers of the request, including the token, which would then stay in memory
		// until the connection ends.
		chosen = http.Header{"Sec-Websocket-Protocol": {protocol.Subprotocol}}
	case len(protocols) > 0:
		// Choose any subprotocol that the client has offered. Otherwise the client would fail the
		// handshake, and would not see the close code.
		chosen = http.Header{"Sec-Websocket-Protocol": {protocols[0]}}
	}
	conn, err := g.upgrader.Upgrade(g.metered(w), r, chosen)
	if err != nil { // the upgrader has answered
		g.metrics.refused.Inc()
		g.log.DebugContext(r.Context(), "upgrade refused", "remote", r.RemoteAddr, "error", err)
		return
	}
	s := newSession(g)
	k := newSocket(s, conn)
	s.link = k
	refusal := s.limitNetwork(r)
	if refusal == nil {
		refusal = g.admit(s, 2)
	}
	if refusal != nil {
		k.refuse(*refusal)
		return
	}
	s.begin()
	// Read in another goroutine, so that this handler returns: net/http uses more memory for an
	// open request than the session uses.
	go k.read(tokenOf(r, protocols), speaksProtocol) //nolint:contextcheck // the session outlives its request
}

// tokenOf returns the token of a request, or "" if the request has none. The hello frame may
// then contain the token.
func tokenOf(r *http.Request, protocols []string) string {
	if token := bearerOf(r); token != "" {
		return token
	}
	for _, p := range protocols {
		if token, ok := strings.CutPrefix(p, bearerProtocol); ok {
			return token
		}
	}
	return ""
}

// bearerOf returns the token in the Authorization header, or "" if there is none.
func bearerOf(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// socket is the WebSocket of a session. One goroutine reads frames. The session's worker writes
// frames; the worker has no goroutine while the client is idle.
type socket struct {
	session *session
	conn    *websocket.Conn

	mu sync.Mutex
	// heardAt is when the last frame arrived.
	heardAt time.Time

	// silent is closed when nothing more is read from the connection.
	silent chan struct{}
}

func newSocket(s *session, conn *websocket.Conn) *socket {
	return &socket{session: s, conn: conn, heardAt: time.Now(), silent: make(chan struct{})}
}

// refuse closes a connection that was not admitted, after sending a close code: see ADR 10.
func (k *socket) refuse(c closing) {
	k.session.end(c)
	go k.exhaust()
	k.session.goodbye()
}

// maxExhaust is the maximum number of bytes that exhaust discards after a frame that cannot be
// parsed. It exceeds the number of bytes that can be in flight on a connection.
const maxExhaust = 1 << 20

// exhaust reads and discards further data until the connection ends. If the gateway closed a
// connection with unread data, TCP would reset the connection, and the client might not get the
// close frame.
func (k *socket) exhaust() {
	defer close(k.silent)
	for {
		_, _, err := k.conn.NextReader()
		if err == nil {
			continue
		}
		var closed *websocket.CloseError
		if !errors.As(err, &closed) {
			// The frame was too long, or the client sends too fast: the stream cannot be
			// parsed any further.
			_, _ = io.CopyN(io.Discard, limit.Unmetered(k.conn.NetConn()), maxExhaust)
		}
		return
	}
}

func (k *socket) received() {
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

// read handles the hello of the client, and then starts listen for further frames.
func (k *socket) read(token string, speaksProtocol bool) {
	if !k.welcome(token, speaksProtocol) {
		k.drainAfterEnd()
		return
	}
	k.session.gateway.admission.enter(k.session)
	// Use a new goroutine: the check of the token has grown the stack of this goroutine, and
	// the stack would stay large.
	go k.listen()
}

// drainAfterEnd ends the session. It then discards further data until the connection has ended.
func (k *socket) drainAfterEnd() {
	defer k.session.gateway.running.Done()
	k.session.leave()
	k.exhaust()
}

// welcome waits for the hello, and returns true if the hello is accepted. If it returns false,
// it has ended the session.
func (k *socket) welcome(token string, speaksProtocol bool) bool {
	s := k.session
	k.conn.SetReadLimit(maxReadableFrame)
	sign := func() error {
		k.received()
		if refusal := s.gaveSign(); refusal != nil {
			s.end(*refusal)
			return errors.New(refusal.reason) // ends the read
		}
		return nil
	}
	k.conn.SetPongHandler(func(string) error { return sign() })
	k.conn.SetPingHandler(func(data string) error {
		if err := sign(); err != nil {
			return err
		}
		err := k.conn.WriteControl(websocket.PongMessage, []byte(data), k.deadline())
		if errors.Is(err, websocket.ErrCloseSent) {
			return nil
		}
		return err
	})

	if !speaksProtocol {
		s.end(closing{code: protocol.CloseNoProtocol, reason: "offer the subprotocol " + protocol.Subprotocol})
		return false
	}
	if token != "" {
		ctx, done := s.newContext()
		refusal := s.authenticate(ctx, token)
		done()
		if refusal != nil {
			s.end(*refusal)
			return false
		}
		k.vouch()
	}
	_ = k.conn.SetReadDeadline(time.Now().Add(s.gateway.cfg.HelloTimeout)) // If this fails, the connection is closed, and the read fails too.
	payload, ok := k.next()
	if !ok {
		return false
	}
	_ = k.conn.SetReadDeadline(time.Time{}) // From here on pings detect silent clients.
	if !k.take(payload, s.greet) {
		return false
	}
	k.vouch()
	return true
}

// vouch is called when the client is authenticated. It calls the method Vouch of the network
// connection, if the connection has this method. A listener that limits unauthenticated
// connections then no longer counts the connection.
func (k *socket) vouch() {
	if conn, ok := limit.Unmetered(k.conn.NetConn()).(interface{ Vouch() }); ok {
		conn.Vouch()
	}
}

// listen handles frames after the hello. It handles each frame in a new goroutine, so that the
// stack of its own goroutine, which waits for frames, stays small.
func (k *socket) listen() {
	defer k.drainAfterEnd()
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

// next returns the next frame, or ok = false if the session ends.
func (k *socket) next() (payload []byte, ok bool) {
	kind, r, err := k.conn.NextReader()
	if err == nil {
		payload, err = io.ReadAll(io.LimitReader(r, protocol.MaxTokenFrameBytes+1))
	}
	if err != nil {
		k.endAfterReadError(err)
		return nil, false
	}
	k.received()
	if kind != websocket.TextMessage {
		k.session.end(closing{code: protocol.CloseProtocol, reason: "frames must be text"})
		return nil, false
	}
	if len(payload) > protocol.MaxTokenFrameBytes {
		k.session.end(tooBig())
		return nil, false
	}
	return payload, true
}

// endAfterReadError is called after a read has failed. It ends the session with a reason if the
// hello did not arrive in time, if the client did not answer the kernel's keepalive probes (the
// read then also times out), or if the client sent too much data or too long a frame. After any
// other error the client has disconnected, so no reason can be sent.
func (k *socket) endAfterReadError(err error) {
	var timeout net.Error
	switch {
	case errors.As(err, &timeout) && timeout.Timeout() && k.session.userID == "":
		k.session.end(closing{code: protocol.CloseProtocol, reason: "no hello in time"})
	case errors.As(err, &timeout) && timeout.Timeout():
		k.session.end(closing{code: protocol.CloseNoPong, reason: "the client does not answer pings"})
	case errors.Is(err, limit.ErrFlood):
		k.session.end(*noRoom(protocol.CloseRateLimited, "the client sends too much data", 0))
	case errors.Is(err, websocket.ErrReadLimit): // the library does not always send a close frame itself
		k.session.end(tooBig())
	}
}

// maxReadableFrame is the frame size above which the WebSocket library ends the connection without
// a reason. It is far above the frame sizes that the protocol allows. So the gateway itself can
// read most frames that are too long, and can send a reason.
const maxReadableFrame = 1 << 20

// tooBig returns the closing for a client whose frame is too long.
func tooBig() closing {
	return closing{code: websocket.CloseMessageTooBig, reason: fmt.Sprintf("a frame may have at most %d bytes, a hello or auth at most %d", protocol.MaxFrameBytes, protocol.MaxTokenFrameBytes)}
}

// take decodes a frame, and executes it with carryOut. It returns false if the session ends.
func (k *socket) take(payload []byte, carryOut func(context.Context, protocol.ClientFrame) *closing) bool {
	s := k.session
	if !utf8.Valid(payload) {
		s.end(closing{code: websocket.CloseInvalidFramePayloadData, reason: "text must be UTF-8"})
		return false
	}
	f, invalid := protocol.DecodeFrame(payload)
	ctx, done := s.newContext()
	defer done()
	var refusal *closing
	if invalid != nil {
		refusal = s.refuse(f, invalid)
	} else {
		refusal = carryOut(ctx, f)
	}
	if refusal != nil {
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

// ping implements link. It sends a ping frame of badge.v1, since scripts in browsers cannot see
// WebSocket pings. It also sends a WebSocket ping, for clients that do not answer ping frames
// of badge.v1.
func (k *socket) ping() error {
	if err := k.session.send(protocol.BareFrame{T: protocol.FramePing}); err != nil {
		return err
	}
	return k.conn.WriteControl(websocket.PingMessage, nil, k.deadline())
}

// closeTimeout limits the closing handshake.
const closeTimeout = time.Second

// close implements link. It waits up to closeTimeout for the client's close frame.
func (k *socket) close(c *closing) {
	defer k.cut()
	if c != nil {
		message := websocket.FormatCloseMessage(c.code, cutReason(c.reason))
		_ = k.conn.WriteControl(websocket.CloseMessage, message, time.Now().Add(closeTimeout)) // the connection ends anyway
	}
	moment := time.NewTimer(closeTimeout)
	defer moment.Stop()
	select {
	case <-k.silent:
	case <-moment.C:
	}
}

// cut implements link.
func (k *socket) cut() { _ = k.conn.Close() } // fails only if the connection is closed already

// cutReason shortens a reason so that it fits into a close frame.
func cutReason(reason string) string {
	const limit = 123
	for len(reason) > limit {
		_, size := utf8.DecodeLastRuneInString(reason)
		reason = reason[:len(reason)-size]
	}
	return reason
}
