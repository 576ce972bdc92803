package gateway

import (
	"cmp"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/badged/badged/gateway/protocol"
	"github.com/badged/badged/internal/base/limit"
)

const (
	// greetingsAtOnce is the maximum number of clients that the gateway greets concurrently. To
	// greet a client means to subscribe to its user on the bus and to read the user's state. The
	// number is large, so that one query can read the states of many users of a partition.
	greetingsAtOnce = 512
	// greetingWait is how long a client that has sent its hello may be queued for the greeting.
	// After this time the gateway disconnects the client, and tells it when to reconnect. Clients
	// wait longer than greetingWait for the answer to their hello.
	greetingWait = 8 * time.Second
)

// admission limits how many clients are greeted concurrently. To greet a client means to
// subscribe to its user on the bus and to read the user's state. Further clients are queued in
// order of arrival. A queued client has no goroutine, so it costs no more than an idle
// connection. admission is safe for concurrent use.
type admission struct {
	mu sync.Mutex
	// inside is how many sessions are being greeted.
	inside  int
	waiting []waiter
	// late is the timer that calls dismiss when the first session of the queue has waited for
	// greetingWait; nil if the queue is empty.
	late *time.Timer
}

type waiter struct {
	session *session
	since   time.Time
}

// place is the stage of a session in the admission. The mutex of admission guards it.
type place uint8

const (
	placeNone    place = iota
	placeWaiting       // for admission
	placeInside        // being greeted
	placeLeft          // greeted or ended
)

// enter starts the greeting of a session, or queues the session if too many are being greeted.
func (a *admission) enter(s *session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case s.place != placeNone: // the session has ended already
	case a.inside < greetingsAtOnce:
		a.admit(s)
	default:
		s.place = placeWaiting
		a.waiting = append(a.waiting, waiter{s, time.Now()})
		if a.late == nil {
			a.late = time.AfterFunc(greetingWait, a.dismiss)
		}
	}
}

func (a *admission) admit(s *session) {
	a.inside++
	s.place = placeInside
	s.schedule(taskGreet)
}

// leave is called when the state of a session's user has been read, or when the session ends.
// It records that the greeting has ended, and admits queued sessions. It is idempotent.
func (a *admission) leave(s *session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := s.place
	s.place = placeLeft
	if was != placeInside {
		return
	}
	a.inside--
	for len(a.waiting) > 0 && a.inside < greetingsAtOnce {
		if next := a.pop(); next.place == placeWaiting {
			a.admit(next)
		}
	}
}

// pop removes the first session from the queue. That session may have ended already.
func (a *admission) pop() *session {
	first := a.waiting[0].session
	a.waiting[0] = waiter{}
	a.waiting = a.waiting[1:]
	if len(a.waiting) == 0 {
		a.waiting = nil
		a.late.Stop()
		a.late = nil
	}
	return first
}

// dismiss ends the sessions that have been queued for greetingWait, and tells their clients
// when to reconnect.
func (a *admission) dismiss() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.waiting) > 0 {
		if left := greetingWait - time.Since(a.waiting[0].since); left > 0 {
			a.late.Reset(left)
			return
		}
		if s := a.pop(); s.place == placeWaiting {
			s.end(*noRoom(protocol.CloseCapacity, "too many clients connect at once", 0))
		}
	}
}

// Limits limit clients; 0 means no limit. Rates are per second. A client may exceed a rate by a
// burst of at most ten times the rate.
type Limits struct {
	// Connections is the maximum number of open connections of the gateway. Connections whose hello
	// is not accepted yet do not count.
	Connections int
	// UserConnections is the maximum number of open connections of one user.
	UserConnections int
	// Connects is the rate of new connections from one network; see ClientOf.
	Connects float64
	// Commands is the rate of commands of one user. Commands over all WebSockets to this
	// gateway and over HTTP count together.
	Commands float64
	// TrustedProxies are the proxies whose X-Forwarded-For is trusted.
	TrustedProxies []netip.Prefix
}

// ClientOf returns the network from which a request comes. A network is an IPv4 address, or the
// /64 of an IPv6 address, since providers assign at least a /64 to a household. All requests
// from one network count as one client. ClientOf uses the address of the peer or, if the peer
// is a trusted proxy, the client's address in X-Forwarded-For. ok is false if there is no
// address, as on a Unix socket.
func ClientOf(r *http.Request, trusted []netip.Prefix) (client netip.Prefix, ok bool) {
	return limit.Client(r, trusted)
}

// signsPerSecond is the number of pings and pongs that a client may send per second. Clients
// that check their connection send a ping every few seconds.
const signsPerSecond = 10

// maxFrameHeader is the maximum size of the header of a WebSocket frame from a client, in
// bytes.
const maxFrameHeader = 14

// metered limits the bytes per second that a client may send. The limit is the maximum size of
// a frame, multiplied by the number of commands, pings and pongs that a client may send per
// second. If Limits.Commands is 0, metered does not limit bytes.
func (g *Gateway) metered(w http.ResponseWriter) http.ResponseWriter {
	perSecond := g.cfg.Limits.Commands
	if perSecond <= 0 {
		return w
	}
	return limit.Metered(w, (perSecond+signsPerSecond)*(protocol.MaxFrameBytes+maxFrameHeader))
}

// The shortest and longest delay after which a refused client reconnects.
const (
	minRoomWait = 5 * time.Second
	maxRoomWait = 30 * time.Second
)

// noRoom returns the closing (close code, reason and delay) for a connection that exceeds a
// limit. The client reconnects after a random delay of at least atLeast (by default minRoomWait).
func noRoom(code int, reason string, atLeast time.Duration) *closing {
	atLeast = cmp.Or(atLeast, minRoomWait)
	return &closing{
		code: code, reason: reason,
		reconnect: atLeast + rand.N(max(maxRoomWait-atLeast, time.Second)), //nolint:gosec // spreads load, guards nothing
	}
}
