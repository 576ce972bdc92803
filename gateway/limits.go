package gateway

import (
	"cmp"
	"math"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

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

// burstSeconds is how many seconds' worth of a rate may be used at once.
const burstSeconds = 10

// burstOf returns the burst of a rate.
func burstOf(perSecond float64) int {
	return max(1, int(math.Ceil(burstSeconds*perSecond)))
}

// take takes one token of l, or returns how long until there is one.
func take(l *rate.Limiter, now time.Time) (wait time.Duration) {
	r := l.ReserveN(now, 1)
	if wait = r.DelayFrom(now); wait > 0 {
		r.CancelAt(now)
	}
	return wait
}

// limiters has a limiter for each key, such as an address. It forgets a key that
// was not used for as long as a limiter takes to fill: a new limiter is equal. It
// is safe for concurrent use.
type limiters[K comparable] struct {
	perSecond float64

	mu sync.Mutex
	// current has the keys used since turned, previous others used in the period
	// before.
	current, previous map[K]*allowance
	turned            time.Time
}

// maxLimiters is the most keys in each of the two maps. It bounds the memory that
// an attacker with many addresses can take: the oldest keys are forgotten early.
const maxLimiters = 1 << 16

// allowance is the limit of one key.
type allowance struct {
	limiter *rate.Limiter
	// refused estimates how many were told to come later and have yet to come.
	refused int
}

// newLimiters returns limiters with a rate; 0 is no limit.
func newLimiters[K comparable](perSecond float64) *limiters[K] {
	return &limiters[K]{perSecond: perSecond, current: map[K]*allowance{}}
}

// take counts one for a key, or returns how long to wait.
func (ls *limiters[K]) take(key K, now time.Time) (wait time.Duration) {
	if ls.perSecond <= 0 {
		return 0
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return take(ls.of(key, now).limiter, now)
}

// turn is take for clients that come back when told to: consecutive refusals get
// different times, so that all find room.
func (ls *limiters[K]) turn(key K, now time.Time) (wait time.Duration) {
	if ls.perSecond <= 0 {
		return 0
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	a := ls.of(key, now)
	if wait = take(a.limiter, now); wait == 0 {
		a.refused = max(0, a.refused-1)
		return 0
	}
	wait += time.Duration(float64(a.refused) / ls.perSecond * float64(time.Second))
	a.refused = min(a.refused+1, maxRefused)
	return wait
}

// of returns the allowance of a key. The caller holds the mutex.
func (ls *limiters[K]) of(key K, now time.Time) *allowance {
	burst := burstOf(ls.perSecond)
	fills := time.Duration(float64(burst) / ls.perSecond * float64(time.Second))
	if age := now.Sub(ls.turned); age >= fills || len(ls.current) >= maxLimiters {
		ls.previous = ls.current
		if age >= 2*fills {
			ls.previous = nil
		}
		ls.current, ls.turned = map[K]*allowance{}, now
	}
	a, ok := ls.current[key]
	if !ok {
		if a, ok = ls.previous[key]; !ok {
			a = &allowance{limiter: rate.NewLimiter(rate.Limit(ls.perSecond), burst)}
		}
		ls.current[key] = a
	}
	return a
}

// signsPerSecond is the rate of pings and pongs that a client may send. One that
// checks its connection often pings every few seconds.
const signsPerSecond = 10

// maxRefused is how many refused commands close a connection: its client ignores
// the refusals.
const maxRefused = 100

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
