package gateway

import (
	"cmp"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/badged/badged/gateway/protocol"
	"github.com/badged/badged/internal/limit"
)

const (
	// greetingsAtOnce is how many clients are greeted at once: enough for those
	// of one partition to share queries.
	greetingsAtOnce = 512
	// greetingWait is how long a client waits for its turn before it is told to
	// come back later. Clients wait longer than this for an answer.
	greetingWait = 8 * time.Second
)

// admission bounds how many clients are greeted at once. To greet a client is to
// join its user and read its state. The others wait in the order in which they
// came, without a goroutine: they cost no more than an idle connection. It is
// safe for concurrent use.
type admission struct {
	mu sync.Mutex
	// inside is how many sessions are being greeted.
	inside  int
	waiting []waiter
	// late dismisses sessions that wait too long; nil while none waits.
	late *time.Timer
}

// waiter is a session that waits.
type waiter struct {
	session *session
	since   time.Time
}

// place is where a session is, guarded by the mutex of admission.
type place uint8

const (
	placeNone    place = iota
	placeWaiting       // for its turn
	placeInside        // being greeted
	placeLeft          // greeted or ended
)

// enter greets a session, or queues it until there is room.
func (a *admission) enter(s *session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case s.place != placeNone: // it has ended
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

// leave makes room for the next when a session is greeted or has ended. It is
// idempotent.
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

// pop removes the session that has waited longest. It may have ended.
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

// dismiss closes the sessions that have waited too long.
func (a *admission) dismiss() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.waiting) > 0 {
		if left := greetingWait - time.Since(a.waiting[0].since); left > 0 {
			a.late.Reset(left)
			return
		}
		if s := a.pop(); s.place == placeWaiting {
			s.end(*noRoom(protocol.CloseCapacity, "too many clients come at once", 0))
		}
	}
}

// Limits bound what clients may do; 0 is no limit. Rates are per second, and allow
// bursts of ten seconds' worth.
type Limits struct {
	// Connections is the most open connections, counted from an accepted hello.
	Connections int
	// UserConnections is the most open connections of one user.
	UserConnections int
	// Connects is the rate of new connections from one client; see ClientOf.
	Connects float64
	// Commands is the rate of commands of one user, over all connections to this
	// gateway and over HTTP.
	Commands float64
	// TrustedProxies are the proxies whose X-Forwarded-For is believed.
	TrustedProxies []netip.Prefix
}

// ClientOf returns the network that a request comes from, which counts as one
// client: an IPv4 address, or the /64 of an IPv6 address, the size that one
// household gets. It is that of the peer, or of the client that trusted proxies
// name in X-Forwarded-For. ok is false if there is no address, as on a Unix socket.
func ClientOf(r *http.Request, trusted []netip.Prefix) (client netip.Prefix, ok bool) {
	return limit.Client(r, trusted)
}

// signsPerSecond is the rate of pings and pongs that a client may send. One that
// checks its connection often pings every few seconds.
const signsPerSecond = 10

// maxFrameHeader is the most that a frame of a client has before its payload.
const maxFrameHeader = 14

// metered limits the bytes that a client sends to those of the largest frames that
// it may send. Without a limit of commands there is none.
func (g *Gateway) metered(w http.ResponseWriter) http.ResponseWriter {
	perSecond := g.cfg.Limits.Commands
	if perSecond <= 0 {
		return w
	}
	return limit.Metered(w, (perSecond+signsPerSecond)*(protocol.MaxFrameBytes+maxFrameHeader))
}

// The shortest and longest time after which clients come back when there is no
// room.
const (
	minRoomWait = 5 * time.Second
	maxRoomWait = 30 * time.Second
)

// noRoom refuses a connection over a limit. The client comes back at a random time,
// but not before atLeast.
func noRoom(code int, reason string, atLeast time.Duration) *closing {
	atLeast = cmp.Or(atLeast, minRoomWait)
	return &closing{
		code: code, reason: reason,
		reconnect: atLeast + rand.N(max(maxRoomWait-atLeast, time.Second)), //nolint:gosec // spreads load, guards nothing
	}
}
