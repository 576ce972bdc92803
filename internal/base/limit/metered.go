package limit

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"time"
)

// The rate of a client's bytes is limited, and not only the rate of its frames: empty frames and
// fragments also take processor time, but do not reach a handler.

// ErrFlood is returned when a caller reads from a client that has exceeded its rate.
var ErrFlood = errors.New("the client sends too much")

// meteredConn limits the rate of the bytes that are read from a connection. Only one goroutine may
// read at a time.
type meteredConn struct {
	net.Conn
	perSecond float64
	// level is the number of bytes by which the client had exceeded the rate at the time readAt.
	level  float64
	readAt time.Time
}

// Read implements net.Conn.
func (m *meteredConn) Read(b []byte) (int, error) {
	n, err := m.Conn.Read(b)
	now := time.Now()
	m.level = max(0, m.level-now.Sub(m.readAt).Seconds()*m.perSecond) + float64(n)
	m.readAt = now
	if m.level > BurstSeconds*m.perSecond {
		return 0, ErrFlood
	}
	return n, err
}

// Unmetered returns the connection without the limit. A caller can use it to read and discard the
// data that a client still sends.
func Unmetered(conn net.Conn) net.Conn {
	if m, ok := conn.(*meteredConn); ok {
		return m.Conn
	}
	return conn
}

// meteredWriter returns a meteredConn when the connection is hijacked.
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
	return &meteredConn{Conn: conn, perSecond: w.perSecond, readAt: time.Now()}, buffered, nil
}

// Metered returns a writer for the upgrade of a request to a WebSocket. The client may send
// perSecond bytes a second on the upgraded connection, with a burst of [BurstSeconds]. If it sends
// more, reading returns ErrFlood.
func Metered(w http.ResponseWriter, perSecond float64) http.ResponseWriter {
	return meteredWriter{w, perSecond}
}
