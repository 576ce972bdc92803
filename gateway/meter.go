package gateway

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"time"
)

// Clients are limited in bytes besides frames: empty frames and fragments cost
// something too, and no handler sees them.

// errFlood is the error of reading from a client that sends too much.
var errFlood = errors.New("the client sends too much")

// maxFrameHeader is the most that a frame of a client has before its payload.
const maxFrameHeader = 14

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
	if m.level > burstSeconds*m.perSecond {
		return 0, errFlood
	}
	return n, err
}

// unmetered returns the connection without the limit, to discard what it sends.
func unmetered(conn net.Conn) net.Conn {
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

// meter limits the bytes that a client sends to those of the largest frames that
// it may send. Without a limit of commands there is none.
func (g *Gateway) meter(w http.ResponseWriter) http.ResponseWriter {
	perSecond := g.cfg.Limits.Commands
	if perSecond <= 0 {
		return w
	}
	return meteredWriter{w, (perSecond + signsPerSecond) * (MaxFrameBytes + maxFrameHeader)}
}
