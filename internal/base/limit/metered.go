package limit

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"time"
)

// Clients are limited in bytes, and not only in frames: empty frames and fragments cost
// processor time too, but no handler sees them.

// ErrFlood is the error of reading from a client that sends too much.
var ErrFlood = errors.New("the client sends too much")

// meteredConn counts the bytes read from a connection. Only one goroutine may read.
type meteredConn struct {
	net.Conn
	perSecond float64
	// level is how many bytes more than the rate allows had been read at the time at.
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

// Unmetered returns the connection without the limit. It is for discarding the rest of what a
// client sends.
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

// Metered returns a writer for an upgrade to a WebSocket. On the upgraded connection the
// client may send perSecond bytes a second; beyond that and a burst, reading fails with
// ErrFlood.
func Metered(w http.ResponseWriter, perSecond float64) http.ResponseWriter {
	return meteredWriter{w, perSecond}
}
