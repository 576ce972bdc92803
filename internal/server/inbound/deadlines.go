package inbound

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"
)

const (
	// Grace is a part of two time limits: a body must arrive, and the client must read an answer,
	// within the size in bytes divided by SlowestRate, plus Grace.
	Grace = 10 * time.Second
	// SlowestRate is the lowest allowed average rate of a body or an answer, in bytes per
	// second.
	SlowestRate = 16 << 10
	// linger is how long the server waits for more data of a body that the handler has not read
	// to its end. If the server closed a connection with unread data, TCP would reset the
	// connection, and the client could lose the answer.
	linger = time.Second
)

// allowed returns the time that n bytes take at SlowestRate.
func allowed(n int) time.Duration { return time.Duration(n) * time.Second / SlowestRate }

// maxBodyTime is the longest time in which a body may arrive, whatever its size.
const maxBodyTime = time.Minute

// Deadlines wraps h, and sets read and write deadlines for its requests. If `bodies` is not
// nil, Deadlines also reserves memory for the bodies of requests. When h reads a body, the read
// fails with os.ErrDeadlineExceeded if the body arrives too slowly, and with a [*RoomError] if
// there is no memory for the body. If h does not read a body to its end, the server closes the
// connection after the answer. If h sets write deadlines itself, Deadlines sets no write
// deadlines.
func Deadlines(h http.Handler, bodies *Bodies) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e := &exchange{ResponseWriter: w, control: http.NewResponseController(w), patience: Grace}
		if r.Body != nil && r.Body != http.NoBody {
			e.body = &body{ReadCloser: r.Body, control: e.control, room: room{bodies: bodies, declared: r.ContentLength}}
			defer e.body.release()
			r = r.WithContext(context.WithValue(r.Context(), bodyKey{}, e.body)) // a copy: the server still uses its own request
			r.Body = e.body
		}
		h.ServeHTTP(e, r)
		e.finish()
	})
}

// body is a request body with a deadline.
type body struct {
	io.ReadCloser
	room

	control *http.ResponseController
	// began is the time of the first read.
	began time.Time
	// came is the number of bytes that have arrived.
	came  int
	ended bool
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.ended {
		return b.ReadCloser.Read(p)
	}
	p, err := b.fit(p, b.came)
	if err != nil {
		return 0, err
	}
	if b.began.IsZero() {
		b.began = time.Now()
	}
	_ = b.control.SetReadDeadline(b.began.Add(min(Grace+allowed(b.came), maxBodyTime))) // fails only in tests, whose answers have no connection
	n, err := b.ReadCloser.Read(p)
	b.came += n
	if errors.Is(err, io.EOF) {
		b.ended = true
		_ = b.control.SetReadDeadline(time.Time{}) // from now on, the server watches for a disconnect
	}
	return n, err
}

// exchange is a request in progress.
type exchange struct {
	http.ResponseWriter
	control *http.ResponseController
	// body is nil if the request has none.
	body *body
	// wrote is true if the header of the answer was written. hijacked is true if the connection was
	// hijacked.
	wrote, hijacked bool
	// ownDeadline is true if the handler has set a write deadline itself.
	ownDeadline bool
	// patience is the time for which writes may still block, in total, because the client does
	// not read.
	patience time.Duration
}

// Unwrap is for http.ResponseController.
func (e *exchange) Unwrap() http.ResponseWriter { return e.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (e *exchange) WriteHeader(status int) {
	if status >= http.StatusOK {
		e.wrote = true
		e.leaveBody()
	}
	e.ResponseWriter.WriteHeader(status)
}

// leaveBody is called before the header of the answer is written. If the handler has not read
// the body to its end, leaveBody makes the server close the connection after the answer.
// Otherwise the server would wait for the rest of the body.
func (e *exchange) leaveBody() {
	if e.body != nil && !e.body.ended {
		e.Header().Set("Connection", "close")
	}
}

// Write implements http.ResponseWriter.
func (e *exchange) Write(b []byte) (int, error) {
	if !e.wrote {
		e.WriteHeader(http.StatusOK)
	}
	if e.ownDeadline {
		return e.ResponseWriter.Write(b)
	}
	began := time.Now()
	e.patience += allowed(len(b))
	_ = e.control.SetWriteDeadline(began.Add(e.patience)) // as in Read
	n, err := e.ResponseWriter.Write(b)
	e.patience -= time.Since(began)
	return n, err
}

// FlushError is for http.ResponseController.
func (e *exchange) FlushError() error {
	if !e.wrote {
		e.WriteHeader(http.StatusOK)
	}
	return e.control.Flush()
}

// SetWriteDeadline is for http.ResponseController.
func (e *exchange) SetWriteDeadline(deadline time.Time) error {
	e.ownDeadline = true
	return e.control.SetWriteDeadline(deadline)
}

// Hijack implements http.Hijacker.
func (e *exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := e.control.Hijack()
	e.hijacked = err == nil
	return conn, buffered, err
}

// finish is called after the handler. It sets deadlines for the server, which then flushes the
// answer and reads the rest of the body.
func (e *exchange) finish() {
	if e.hijacked {
		return
	}
	if !e.wrote {
		e.leaveBody()
	}
	if !e.ownDeadline {
		_ = e.control.SetWriteDeadline(time.Now().Add(e.patience)) // as in Read
	}
	if e.body != nil && !e.body.ended {
		_ = e.control.SetReadDeadline(time.Now().Add(linger)) // as in Read
	}
}
