package gateway

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/badged/badged/gateway/protocol"
)

// lastEventID is the name of the header in which a client that reconnects names its state, as
// EPOCH:VERSION.
const lastEventID = "Last-Event-ID"

// ServeSSE serves a client with server-sent events, for networks in which WebSockets do not
// work. Each event is a frame; comments replace pings.
func (g *Gateway) ServeSSE(w http.ResponseWriter, r *http.Request) {
	if !allow(w, r, http.MethodGet) {
		return
	}
	s := newSession(g)
	stream := &stream{
		timeout: g.cfg.WriteTimeout, writer: w, control: http.NewResponseController(w),
		ended: make(chan struct{}),
	}
	s.link = stream

	refusal := s.limitNetwork(r)
	if refusal == nil {
		refusal = g.admit(s, 1)
	}
	if refusal != nil {
		g.refuse(w, refusal)
		return
	}
	if token := bearerOf(r); token != "" {
		refusal = s.authenticate(r.Context(), token)
	}
	if refusal == nil {
		refusal = s.greet(r.Context(), helloOf(r))
	}
	if refusal != nil {
		g.dismiss(s)
		g.running.Done()
		g.refuse(w, refusal)
		return
	}

	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx must not buffer events
	// The connection cannot be reused for another request, since the stream may end inside a
	// frame.
	h.Set("Connection", "close")
	g.metrics.streams.Inc()
	defer g.metrics.streams.Dec()
	retry := time.Second + rand.N(g.cfg.ReconnectSpread) //nolint:gosec // spreads load, guards nothing
	// Ignore an error: the write of the first frame then fails too, and ends the session.
	_ = stream.send([]byte("retry: " + strconv.FormatInt(retry.Milliseconds(), 10) + "\n\n"))
	defer context.AfterFunc(r.Context(), s.leave)() // the client has disconnected
	s.begin()
	g.admission.enter(s)
	<-stream.ended
}

// helloOf returns the hello frame of a client that uses server-sent events: such a client sends
// the content of the frame in its request. If Last-Event-ID is malformed, the hello
// frame names no state.
func helloOf(r *http.Request) protocol.ClientFrame {
	hello := protocol.ClientFrame{T: protocol.FrameHello, Device: r.URL.Query().Get("device")}
	epoch, digits, _ := strings.Cut(r.Header.Get(lastEventID), ":")
	if version, err := strconv.ParseInt(digits, 10, 64); err == nil {
		hello.Epoch, hello.Version = epoch, version
	}
	return hello
}

// stream is the response that carries the frames of a session as events.
type stream struct {
	timeout time.Duration
	writer  http.ResponseWriter
	control *http.ResponseController
	// ended is closed after the last write.
	ended chan struct{}
}

// write implements link. The id of an event names the state that the client has after the
// event, as EPOCH:VERSION.
func (e *stream) write(frame any, body []byte) error {
	var b bytes.Buffer
	switch f := frame.(type) {
	case interface{ Position() string }:
		b.WriteString("id: " + f.Position() + "\n")
	case protocol.ByeFrame:
		if f.ReconnectMS > 0 {
			b.WriteString("retry: " + strconv.FormatInt(f.ReconnectMS, 10) + "\n")
		}
	}
	b.WriteString("data: ") // JSON has no line breaks
	b.Write(body)
	b.WriteString("\n\n")
	return e.send(b.Bytes())
}

func (e *stream) send(b []byte) error {
	if err := e.control.SetWriteDeadline(time.Now().Add(e.timeout)); err != nil {
		return err
	}
	if _, err := e.writer.Write(b); err != nil {
		return err
	}
	return e.control.Flush()
}

// ping implements link.
func (e *stream) ping() error { return e.send([]byte(": ping\n\n")) }

// alive implements link. It always returns true, since a client of an event stream cannot answer
// pings. If the client has disconnected, the request's context ends or a write times out; either
// ends the session.
func (e *stream) alive() bool { return true }

// close implements link: it ends the handler, and with it the stream.
func (e *stream) close(*closing) { close(e.ended) }

// cut implements link.
func (e *stream) cut() {
	_ = e.control.SetWriteDeadline(time.Unix(1, 0)) // fails only if the connection has ended already
}
