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

// Limits is what clients may ask of a gateway at most. Where a number is 0
// there is no limit. Rates are per second, and may be exceeded for a moment:
// what was not used in the last ten seconds is still there.
type Limits struct {
	// Connections is how many may be open at once.
	Connections int
	// UserConnections is how many of those may be one user's.
	UserConnections int
	// Connects is how many connections per second may come from one address.
	Connects float64
	// Commands is how many commands per second a connection may bring; for
	// those that come by HTTP, how many a user.
	Commands float64
	// TrustedProxies are those whose X-Forwarded-For is believed.
	TrustedProxies []netip.Prefix
}

// burstSeconds is for how long what was not used of a rate is kept.
const burstSeconds = 10

// burstOf returns how much may come at once under a rate.
func burstOf(perSecond float64) int {
	return max(1, int(math.Ceil(burstSeconds*perSecond)))
}

// take takes one from l, or returns after which time there will be one.
func take(l *rate.Limiter, now time.Time) (wait time.Duration) {
	r := l.ReserveN(now, 1)
	if wait = r.DelayFrom(now); wait > 0 {
		r.CancelAt(now)
	}
	return wait
}

// limiters are one limiter for each key, such as an address. Whoever was not
// seen for as long as a limiter takes to fill is forgotten: a new one would be
// the same. Safe for concurrent use.
type limiters[K comparable] struct {
	perSecond float64

	mu sync.Mutex
	// Keys are in current if they came since turned, else in previous if they
	// came in the period before.
	current, previous map[K]*rate.Limiter
	turned            time.Time
}

// maxLimiters bounds how many keys are in one of the two maps, and with it what
// an attacker with many addresses can make the gateway remember. Beyond, those
// that came first are forgotten early.
const maxLimiters = 1 << 16

// newLimiters returns limiters of a rate; 0 is no limit.
func newLimiters[K comparable](perSecond float64) *limiters[K] {
	return &limiters[K]{perSecond: perSecond, current: map[K]*rate.Limiter{}}
}

// take counts one more of a key, or returns after which time there may be one.
func (ls *limiters[K]) take(key K, now time.Time) (wait time.Duration) {
	if ls.perSecond <= 0 {
		return 0
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	burst := burstOf(ls.perSecond)
	fills := time.Duration(float64(burst) / ls.perSecond * float64(time.Second))
	if age := now.Sub(ls.turned); age >= fills || len(ls.current) >= maxLimiters {
		ls.previous = ls.current
		if age >= 2*fills {
			ls.previous = nil
		}
		ls.current, ls.turned = map[K]*rate.Limiter{}, now
	}
	l, ok := ls.current[key]
	if !ok {
		if l, ok = ls.previous[key]; !ok {
			l = rate.NewLimiter(rate.Limit(ls.perSecond), burst)
		}
		ls.current[key] = l
	}
	return take(l, now)
}

// allowance is what a connection may still bring. Not safe for concurrent use.
type allowance struct {
	limiter *rate.Limiter
	// refused is how many commands were told to come later and are still to
	// come, as far as can be known.
	refused int
}

// pingsPerSecond is how often a client may ask for a sign of life, by frames and
// by pings of the protocol, in the long run. One that wants to know soon whether
// the connection is good asks every few seconds.
const pingsPerSecond = 10

// maxRefused is how many commands may be told to come later before a client
// counts as one that does not listen.
const maxRefused = 100

func newAllowance(perSecond float64) *allowance {
	return &allowance{limiter: rate.NewLimiter(rate.Limit(perSecond), burstOf(perSecond))}
}

// take counts one more, or returns after which time it may come. Commands that
// are refused in a row are given different times, so that all find room when
// they come again. ok is false where the client does not listen.
func (a *allowance) take(now time.Time) (wait time.Duration, ok bool) {
	if wait = take(a.limiter, now); wait == 0 {
		a.refused = max(0, a.refused-1)
		return 0, true
	}
	wait += time.Duration(float64(a.refused) / float64(a.limiter.Limit()) * float64(time.Second))
	a.refused++
	return wait, a.refused <= maxRefused
}

// After which time to come back to a gateway that has no room.
const (
	minRoomWait = 5 * time.Second
	maxRoomWait = 30 * time.Second
)

// noRoom returns the refusal of a connection that is one too many. It comes
// back after a time of its own, at least after atLeast.
func noRoom(code int, reason string, atLeast time.Duration) *closing {
	atLeast = cmp.Or(atLeast, minRoomWait)
	return &closing{
		code: code, reason: reason,
		reconnect: atLeast + rand.N(max(maxRoomWait-atLeast, time.Second)), //nolint:gosec // spreads load, guards nothing
	}
}
