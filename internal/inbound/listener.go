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
)

// Listener accepts connections within limits. A connection counts as
// unauthenticated until Vouch. It is safe for concurrent use.
type Listener struct {
	net.Listener
	limits  Limits
	log     *slog.Logger
	metrics *Metrics

	mu sync.Mutex
	// strangers are the unauthenticated connections, oldest first. byAddress has
	// them by address, without those of trusted proxies.
	strangers list.List
	byAddress map[netip.Prefix]*list.List
	// known is the number of authenticated connections. Those that carry requests are in the
	// share of users or in that of keys.
	known       int
	users, keys *share
	// ended counts connections closed at a limit since the last log line, at
	// loggedAt.
	ended    int
	loggedAt time.Time
}

// NewListener returns a listener that accepts from l. metrics may be nil.
func NewListener(l net.Listener, limits Limits, log *slog.Logger, metrics *Metrics) *Listener {
	if metrics == nil {
		metrics = NewMetrics(nil)
	}
	return &Listener{
		Listener: l, limits: limits, log: log, metrics: metrics, byAddress: map[netip.Prefix]*list.List{},
		users: newShare(limits.Users), keys: newShare(limits.Keys),
	}
}

// writeBuffer bounds unread answers in the kernel, which would otherwise grow to
// megabytes.
const writeBuffer = 128 << 10

// logInterval is the least time between log lines about limits.
const logInterval = time.Minute

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			l.endOldest() // the server retries soon
		}
		if err != nil {
			return nil, err
		}
		if tcp, ok := raw(c).(*net.TCPConn); ok {
			_ = tcp.SetWriteBuffer(writeBuffer) // any size works
		}
		if admitted := l.admit(c); admitted != nil {
			return admitted, nil
		}
	}
}

// raw returns the connection below TLS. Closing one that is to end at once closes this:
// TLS would first say goodbye, and wait for clients that do not read.
func raw(c net.Conn) net.Conn {
	if secure, ok := c.(*tls.Conn); ok {
		return secure.NetConn()
	}
	return c
}

// admit counts a connection as unauthenticated, and closes an older one if a
// limit is reached. It returns nil if there is no room.
func (l *Listener) admit(c net.Conn) *conn {
	s := &conn{Conn: c, listener: l}
	s.address, s.counts = l.addressOf(c)
	l.mu.Lock()
	var victim *conn
	limits := l.limits
	switch same := l.byAddress[s.address]; {
	case s.counts && same != nil && over(same.Len(), limits.PerAddress):
		victim = oldest(same)
	case over(l.strangers.Len(), limits.Unauthenticated), over(l.strangers.Len()+l.known, limits.Connections):
		victim = oldest(&l.strangers)
	}
	refused := victim == nil && over(l.strangers.Len()+l.known, limits.Connections)
	if victim != nil {
		l.remove(victim)
	}
	if !refused {
		l.add(s)
	}
	if victim != nil || refused {
		l.tell()
	}
	l.mu.Unlock()

	switch {
	case refused:
		l.metrics.ended.WithLabelValues("files").Inc()
		_ = raw(c).Close() // no answer: it would need the room
		return nil
	case victim != nil:
		l.metrics.ended.WithLabelValues("unauthenticated").Inc()
		_ = raw(victim.Conn).Close() // as above
	}
	return s
}

// endOldest makes room when the process has no more open files.
func (l *Listener) endOldest() {
	l.mu.Lock()
	victim := oldest(&l.strangers)
	if victim != nil {
		l.remove(victim)
		l.tell()
	}
	l.mu.Unlock()
	if victim != nil {
		l.metrics.ended.WithLabelValues("files").Inc()
		_ = raw(victim.Conn).Close() // as in admit
	}
}

// over reports whether adding one to n exceeds the limit.
func over(n, limit int) bool { return limit > 0 && n >= limit }

func oldest(of *list.List) *conn {
	if of.Len() == 0 {
		return nil
	}
	c, _ := of.Front().Value.(*conn)
	return c
}

// tell logs that connections are closed at a limit. The caller holds the mutex.
func (l *Listener) tell() {
	l.ended++
	if now := time.Now(); now.Sub(l.loggedAt) >= logInterval {
		l.log.Warn("connections are closed at a limit: the oldest unauthenticated ones, those that are idle for longest of a user, a key or an address, or new ones if all open files are in use",
			"ended", l.ended, "unauthenticated", l.strangers.Len(), "authenticated", l.known,
			"max_unauthenticated", l.limits.Unauthenticated, "max_per_address", l.limits.PerAddress, "max_connections", l.limits.Connections)
		l.ended, l.loggedAt = 0, now
	}
}

// add adds a stranger. The caller holds the mutex.
func (l *Listener) add(c *conn) {
	c.at = l.strangers.PushBack(c)
	l.metrics.unauthenticated.Inc()
	if !c.counts {
		return
	}
	same := l.byAddress[c.address]
	if same == nil {
		same = list.New()
		l.byAddress[c.address] = same
	}
	c.atAddress = same.PushBack(c)
}

// remove removes a stranger. The caller holds the mutex.
func (l *Listener) remove(c *conn) {
	l.strangers.Remove(c.at)
	l.metrics.unauthenticated.Dec()
	c.at = nil
	if !c.counts {
		return
	}
	same := l.byAddress[c.address]
	if same.Remove(c.atAddress); same.Len() == 0 {
		delete(l.byAddress, c.address)
	}
	c.atAddress = nil
}

// addressOf returns the network to count a connection under: for IPv6 the /64
// that one household gets. counts is false for trusted proxies and unknown
// addresses.
func (l *Listener) addressOf(c net.Conn) (address netip.Prefix, counts bool) {
	peer, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Prefix{}, false
	}
	a := peer.Addr().Unmap().WithZone("")
	if slices.ContainsFunc(l.limits.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return netip.Prefix{}, false
	}
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	address, err = a.Prefix(bits)
	return address, err == nil
}

// conn is a connection that its listener counts.
type conn struct {
	net.Conn
	listener *Listener
	address  netip.Prefix
	counts   bool

	// The rest is guarded by the listener's mutex.

	// at and atAddress are the connection's places in the listener's lists
	// while it is unauthenticated.
	at, atAddress *list.Element
	known         bool
	// vouched is set once the connection is authenticated. Only the server's goroutine of
	// the connection uses header.
	vouched atomic.Bool
	header  header
	// seat is the connection's place in a share; nil if it carries no requests.
	seat *seat
}

// Vouch marks the connection as authenticated. It is idempotent.
func (c *conn) Vouch() {
	l := c.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.at == nil { // authenticated already, or ended
		return
	}
	l.remove(c)
	c.known = true
	c.vouched.Store(true)
	l.known++
	l.metrics.authenticated.Inc()
}

// Read implements net.Conn. It tells clients that speak HTTP without TLS what is wrong: the
// server would only close their connection. It bounds the headers of strangers.
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

// plainAnswer answers a request without TLS.
const plainAnswer = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n" +
	"this port speaks TLS: use https:// or wss:// in place of http:// or ws://\n"

// isHTTP reports whether the first bytes of a connection are the beginning of a request.
func isHTTP(first [5]byte) bool {
	return slices.Contains([]string{"GET /", "HEAD ", "POST ", "PUT /", "DELET", "OPTIO", "PATCH", "PRI *"}, string(first[:]))
}

// Close implements net.Conn.
func (c *conn) Close() error {
	l := c.listener
	l.mu.Lock()
	c.leave()
	switch {
	case c.at != nil:
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

// ConnContext is for http.Server. It adds the connection to requests' contexts.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// Vouch marks the connection of a request's context as authenticated, and says on whose
// behalf the request is. Call it before the body is read. It reports false if there is no
// room for the connection; then refuse the request.
func Vouch(ctx context.Context, by Holder) bool {
	if b, ok := ctx.Value(bodyKey{}).(*body); ok && b.taken == 0 {
		b.holder = by
	}
	c, ok := ctx.Value(connKey{}).(*conn)
	if !ok {
		return true
	}
	if stream, _ := ctx.Value(streamKey{}).(bool); stream {
		c.listener.mu.Lock()
		c.leave()
		c.listener.mu.Unlock()
	} else if !c.sit(by) {
		return false
	}
	c.Vouch()
	return true
}
