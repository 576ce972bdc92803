package inbound

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/badged/badged/internal/base/limit"
)

// Listener accepts connections within limits. A connection counts as unauthenticated until
// Vouch is called for it. It is safe for concurrent use.
type Listener struct {
	net.Listener
	limits  Limits
	log     *slog.Logger
	metrics *Metrics

	mu sync.Mutex
	// strangers limits the unauthenticated connections. It counts each of these connections as
	// idle from its start. So when a limit is reached, the oldest connection is closed, since a
	// share closes the connection that has been idle for longest.
	strangers *share
	// known is the number of authenticated connections. users and keys are the shares of
	// authenticated connections that carry requests. Connections with streams and WebSockets
	// are in neither share.
	known       int
	users, keys *share
	// ended counts the connections that were closed because of a limit since the last log line
	// about such connections. loggedAt is the time of that log line.
	ended    int
	loggedAt time.Time
}

// NewListener returns a listener that accepts from l. metrics may be nil.
func NewListener(l net.Listener, limits Limits, log *slog.Logger, metrics *Metrics) *Listener {
	if metrics == nil {
		metrics = NewMetrics(nil)
	}
	return &Listener{
		Listener: l, limits: limits, log: log, metrics: metrics,
		strangers: newShare(ShareLimits{All: limits.Unauthenticated, PerAddress: limits.PerAddress}),
		users:     newShare(limits.Users), keys: newShare(limits.Keys),
	}
}

// writeBuffer limits the kernel's send buffer of a connection, in bytes. Without a limit, a
// client that does not read its answers could let this buffer grow to megabytes.
const writeBuffer = 128 << 10

// logInterval is the minimum time between log lines about limits.
const logInterval = time.Minute

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			l.endOldest() // frees a descriptor; the server retries Accept soon
		}
		if err != nil {
			return nil, err
		}
		if tcp, ok := raw(c).(*net.TCPConn); ok {
			_ = tcp.SetWriteBuffer(writeBuffer) // the size matters little: ignore the error
		}
		if admitted := l.admit(c); admitted != nil {
			return admitted, nil
		}
	}
}

// raw returns the connection below TLS. To close a connection at once, close the connection
// that raw returns. Closing the TLS connection would first send an alert, and could block if
// the client does not read.
func raw(c net.Conn) net.Conn {
	if secure, ok := c.(*tls.Conn); ok {
		return secure.NetConn()
	}
	return c
}

// admit adds a new connection to the unauthenticated connections. If a limit is reached, it closes
// the oldest unauthenticated connection to which the limit applies. If there is no such connection,
// it closes c and returns nil.
func (l *Listener) admit(c net.Conn) *conn {
	s := &conn{Conn: c, listener: l}
	s.address, s.counts = limit.NetworkOf(c.RemoteAddr().String(), l.limits.TrustedProxies)
	l.mu.Lock()
	victim, _ := l.strangers.room(s, "")
	full := exceeds(l.strangers.all.n+l.known, l.limits.Connections)
	if victim == nil && full {
		victim = oldest(&l.strangers.all.idle)
	}
	refused := victim == nil && full
	if victim != nil {
		l.remove(victim)
	}
	if !refused {
		s.stranger = l.strangers.join(s, "")
		s.stranger.setIdle(true)
		l.metrics.unauthenticated.Inc()
	}
	if victim != nil || refused {
		l.tell()
	}
	l.mu.Unlock()

	switch {
	case refused:
		l.metrics.ended.WithLabelValues("files").Inc()
		_ = raw(c).Close() // send no answer, since that would need memory
		return nil
	case victim != nil:
		l.metrics.ended.WithLabelValues("unauthenticated").Inc()
		_ = raw(victim.Conn).Close() // at once, see raw
	}
	return s
}

// endOldest closes the oldest unauthenticated connection. It is called when the process has
// reached its limit of open files.
func (l *Listener) endOldest() {
	l.mu.Lock()
	victim := oldest(&l.strangers.all.idle)
	if victim != nil {
		l.remove(victim)
		l.tell()
	}
	l.mu.Unlock()
	if victim != nil {
		l.metrics.ended.WithLabelValues("files").Inc()
		_ = raw(victim.Conn).Close() // at once, see raw
	}
}

// exceeds reports whether a new connection would exceed a limit against which n connections count
// already. If `limit` is 0, there is no limit.
func exceeds(n, limit int) bool { return limit > 0 && n >= limit }

func oldest(conns *list.List) *conn {
	if conns.Len() == 0 {
		return nil
	}
	c, _ := conns.Front().Value.(*conn)
	return c
}

// tell counts a connection that is closed because of a limit. It logs the count at most once
// per logInterval. The caller holds the mutex.
func (l *Listener) tell() {
	l.ended++
	if now := time.Now(); now.Sub(l.loggedAt) >= logInterval {
		l.log.Warn("closing connections at a limit: the oldest unauthenticated connection, the longest idle connection of a user, key or address, or new connections if all open files are in use",
			"ended", l.ended, "unauthenticated", l.strangers.all.n, "authenticated", l.known,
			"max_unauthenticated", l.limits.Unauthenticated, "max_per_address", l.limits.PerAddress, "max_connections", l.limits.Connections)
		l.ended, l.loggedAt = 0, now
	}
}

// remove removes a connection from the unauthenticated connections. The caller holds the mutex.
func (l *Listener) remove(c *conn) {
	c.stranger.leave()
	c.stranger = nil
	l.metrics.unauthenticated.Dec()
}

// conn is a connection of a Listener.
type conn struct {
	net.Conn
	listener *Listener
	// address is the network of the client, for limits per address. counts is false if the
	// connection is exempt from these limits, for example because it comes from a trusted
	// proxy.
	address netip.Prefix
	counts  bool

	// The listener's mutex guards stranger, seat and known.

	// stranger is the connection's entry in the share of unauthenticated connections; nil if the
	// connection is authenticated. seat is its entry in the share of users or of keys; nil if the
	// connection is in neither share. known is true while the connection counts as authenticated.
	stranger, seat *seat
	known          bool
	// vouched is true if the connection is authenticated. Only the server's goroutine for the
	// connection uses header.
	vouched atomic.Bool
	header  header
}

// Vouch marks the connection as authenticated. It is idempotent.
func (c *conn) Vouch() {
	l := c.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.stranger == nil { // already authenticated, or closed
		return
	}
	l.remove(c)
	c.known = true
	c.vouched.Store(true)
	l.known++
	l.metrics.authenticated.Inc()
}

// Read implements net.Conn. On unauthenticated connections, it refuses request headers that are
// too large. It also answers a client that speaks HTTP without TLS on a TLS port, since the
// server would close such a connection without a useful answer.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if !c.vouched.Load() && c.header.add(p[:n]) {
		return 0, c.refuseHeader()
	}
	if plain, ok := errors.AsType[tls.RecordHeaderError](err); ok && plain.Conn != nil && isHTTP(plain.RecordHeader) {
		_ = plain.Conn.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = io.WriteString(plain.Conn, plainAnswer)
	}
	return n, err
}

// plainAnswer answers a request without TLS on a TLS port.
const plainAnswer = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n" +
	"this port speaks TLS: use https:// or wss:// in place of http:// or ws://\n"

// isHTTP reports whether a connection begins like an HTTP request.
func isHTTP(first [5]byte) bool {
	return slices.Contains([]string{"GET /", "HEAD ", "POST ", "PUT /", "DELET", "OPTIO", "PATCH", "PRI *"}, string(first[:]))
}

// Close implements net.Conn.
func (c *conn) Close() error {
	l := c.listener
	l.mu.Lock()
	c.leave()
	switch {
	case c.stranger != nil:
		l.remove(c)
	case c.known:
		c.known = false
		l.known--
		l.metrics.authenticated.Dec()
	}
	l.mu.Unlock()
	return c.Conn.Close()
}

type connKey struct{}

// ConnContext is the hook of http.Server that adds the connection to the contexts of its
// requests.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// Vouch marks the connection of a request as authenticated. holder is the user or key that makes
// the request, and ctx is the request's context. Call Vouch before reading the body. If Vouch
// returns false, refuse the request, since a limit of connections that carry requests is
// reached.
func Vouch(ctx context.Context, holder Holder) bool {
	if b, ok := ctx.Value(bodyKey{}).(*body); ok && b.taken == 0 {
		b.holder = holder
	}
	c, ok := ctx.Value(connKey{}).(*conn)
	if !ok {
		return true
	}
	if stream, _ := ctx.Value(streamKey{}).(bool); stream {
		c.listener.mu.Lock()
		c.leave()
		c.listener.mu.Unlock()
	} else if !c.joinShare(holder) {
		return false
	}
	c.Vouch()
	return true
}
