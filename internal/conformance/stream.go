package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// tcpKey is the context key of the TCP connection of a request.
type tcpKey struct{}

func withTCP(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, tcpKey{}, c)
}

func tcpOf(r *http.Request) net.Conn {
	c, _ := r.Context().Value(tcpKey{}).(net.Conn)
	return c
}

// allowOrigin allows pages of any origin to use a route, since the client may be a page in a
// browser.
func allowOrigin(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Last-Event-ID")
	h.Set("Access-Control-Expose-Headers", "Retry-After")
	h.Set("Access-Control-Max-Age", "600")
}

// stream is a stream of server-sent events. The script writes to the stream while the HTTP handler
// of the stream is blocked.
type stream struct {
	writer  http.ResponseWriter
	control *http.ResponseController
	tcp     net.Conn
	started bool
	// done is closed when the script ends the stream.
	done chan struct{}
	once sync.Once
}

// serveStream reports an event stream that the client opens, and returns when the script ends the
// stream.
func (s *server) serveStream(w http.ResponseWriter, r *http.Request) {
	e := &stream{writer: w, control: http.NewResponseController(w), tcp: tcpOf(r), done: make(chan struct{})}
	c := &conn{link: e, header: r.Header.Get("Authorization"), lastEventID: r.Header.Get("Last-Event-ID")}
	s.tell(event{kind: opened, conn: c})
	select {
	case <-e.done:
		return
	case <-s.quit:
		return
	case <-r.Context().Done():
		s.tell(event{kind: closed, conn: c, err: context.Cause(r.Context())})
	}
	// The client has disconnected. Wait until the script has ended the stream too, since the script
	// may still write to it.
	select {
	case <-e.done:
	case <-s.quit:
	}
}

// begin writes the headers of the response, and the field "retry" of server-sent events. This field
// sets the pause before a reconnect of clients such as EventSource, which do not choose a pause
// themselves.
func (e *stream) begin() error {
	if e.started {
		return nil
	}
	e.started = true
	h := e.writer.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("Connection", "close")
	return e.write("retry: " + strconv.FormatInt(backoff.Milliseconds(), 10) + "\n\n")
}

func (e *stream) write(text string) error {
	if err := e.control.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	if _, err := io.WriteString(e.writer, text); err != nil {
		return err
	}
	return e.control.Flush()
}

// eventOf encodes a frame as a server-sent event. The event id of a state frame consists of its
// epoch and version; the client sends it as Last-Event-ID when it reconnects.
func eventOf(f frame) string {
	var b bytes.Buffer
	switch f.text("t") {
	case "snapshot", "changes":
		fmt.Fprintf(&b, "id: %s:%v\n", f.text("epoch"), f["version"])
	case "bye":
		if ms, ok := f["reconnect_ms"]; ok {
			fmt.Fprintf(&b, "retry: %v\n", ms)
		}
	}
	fmt.Fprintf(&b, "data: %s\n\n", f.encode())
	return b.String()
}

func (e *stream) send(f frame) error {
	if err := e.begin(); err != nil {
		return err
	}
	return e.write(eventOf(f))
}

// ping sends a comment of the event stream format.
func (e *stream) ping() error { return e.write(": ping\n\n") }

func (e *stream) end(int, string) error {
	e.once.Do(func() { close(e.done) })
	return nil
}

func (e *stream) cut() {
	reset(e.tcp)
	_ = e.end(0, "") // never fails
}

// refuse answers the request with an error status instead of a stream.
func (e *stream) refuse(a answer) {
	a.write(e.writer)
	_ = e.end(0, "") // never fails
}

// answer is a complete answer to an HTTP request.
type answer struct {
	status      int
	contentType string
	retryAfter  string
	body        []byte
}

// Content types of answers.
const (
	jsonType    = "application/json"
	problemType = "application/problem+json"
)

// problem converts an error frame into an HTTP answer with the same content.
func problem(status int, f frame) answer {
	body := frame{"type": "urn:badged:problem", "title": http.StatusText(status), "status": status, "detail": f["message"]}
	a := answer{status: status, contentType: problemType}
	if code := f.text("code"); code != "" {
		body["code"] = code
	}
	if ms, ok := f["retry_ms"]; ok {
		body["retry_ms"] = ms
		n, err := strconv.ParseInt(fmt.Sprint(ms), 10, 64)
		if err != nil {
			panic(err) // scripts contain only whole numbers
		}
		a.retryAfter = strconv.FormatInt((n+999)/1000, 10) // the header has seconds, rounded up
	}
	a.body = body.encode()
	return a
}

func (a answer) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", a.contentType)
	h.Set("Cache-Control", "no-store")
	if a.retryAfter != "" {
		h.Set("Retry-After", a.retryAfter)
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // the client may have disconnected
}

// post is a command over HTTP that is not answered yet.
type post struct {
	header string
	tcp    net.Conn
	// answers receives at most one answer.
	answers chan answer
	// gone returns an error if the client has canceled the request.
	gone func() error
}

// serveCommand reports a command as an event, and writes the answer that the script gives.
func (s *server) serveCommand(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxFrameBytes))
	if err != nil {
		s.tell(event{kind: strayed, text: fmt.Appendf(nil, "a command that cannot be read: %v", err)})
		return
	}
	p := &post{header: r.Header.Get("Authorization"), tcp: tcpOf(r), answers: make(chan answer, 1), gone: r.Context().Err}
	s.tell(event{kind: received, post: p, text: body})
	select {
	case a := <-p.answers:
		a.write(w)
	case <-s.quit:
	case <-r.Context().Done(): // the client or the script has ended the connection
	}
}

// cut cuts the connection of the command, so that the client gets no answer.
func (p *post) cut() { reset(p.tcp) }

// answer answers the command with the HTTP answer that has the content of a frame.
func (p *post) answer(f frame) {
	a := answer{status: http.StatusOK, contentType: jsonType, body: f.encode()}
	if f.text("t") == "error" {
		a = problem(statusOf(f.text("code")), f)
	}
	p.answers <- a
}

// statusOf returns the HTTP status for the code of an error frame.
func statusOf(code string) int {
	switch code {
	case "invalid":
		return http.StatusBadRequest
	case "not_found":
		return http.StatusNotFound
	case "rate_limited":
		return http.StatusTooManyRequests
	}
	return http.StatusServiceUnavailable
}

// lastEvent converts a Last-Event-ID into a hello frame with the same epoch and version.
func lastEvent(id string) frame {
	if id == "" {
		return frame{}
	}
	epoch, version, _ := strings.Cut(id, ":")
	return frame{"epoch": epoch, "version": json.Number(version)}
}
