package limit

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"time"
)

// Clients are limited in bytes besides frames: empty frames and fragments cost
// something too, and no handler sees them.

// ErrFlood is the error of reading from a client that sends too much.
var ErrFlood = errors.New("the client sends too much")

// meteredConn counts what is read from a connection. One goroutine reads.
type meteredConn struct {
	net.Conn
	perSecond float64
	// level is how many bytes more than the rate allows were read by the time at.
	level float64
	at    time.Time
}

// Read implements net.Conn.
func (m *meteredConn) Read(b []byte) (int, error) {
	n, err := m.Conn.Read(b)
	now := time.Now()
	m.level = max(0, m.level-now.Sub(m.at).Seconds()*m.perSecond) + float64(n)
	m.at = now
	if m.level > BurstSeconds*m.perSecond {
		return 0, ErrFlood
	}
	return n, err
}

// Unmetered returns the connection without the limit, to discard what it sends.
func Unmetered(conn net.Conn) net.Conn {
	if m, ok := conn.(*meteredConn); ok {
		return m.Conn
	}
	return conn
}

// meteredWriter wraps a hijacked connection in a meteredConn.
type meteredWriter struct {
	http.ResponseWriter
	perSecond float64
}

// Hijack implements http.Hijacker.
func (w meteredWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	return &meteredConn{Conn: conn, perSecond: w.perSecond, at: time.Now()}, buffered, nil
}

// Metered returns a writer for an upgrade to a WebSocket, on whose connection the
// client may send that many bytes a second.
func Metered(w http.ResponseWriter, perSecond float64) http.ResponseWriter {
	return meteredWriter{w, perSecond}
}
