// Package limit identifies clients by their networks. For each client it limits the rate of
// actions, the rate of bytes that the client sends, and the resources that the client uses at the
// same time.
//
// The package does not know requests or frames. ADR 44 has the reasons.
package limit

import (
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// BurstSeconds is the burst of every rate, in seconds: a rate of 5 a second allows a burst of 50.
const BurstSeconds = 10

// burst returns the burst of a rate as a number of tokens, at least 1.
func burst(perSecond float64) int {
	return max(1, int(math.Ceil(BurstSeconds*perSecond)))
}

// Take takes one token from l and returns 0. If l has no token, Take returns the time until l has
// one.
func Take(l *rate.Limiter, now time.Time) (wait time.Duration) {
	r := l.ReserveN(now, 1)
	if wait = r.DelayFrom(now); wait > 0 {
		r.CancelAt(now)
	}
	return wait
}

// MaxRefused is the maximum number of refusals that Turn counts for a key. Above this number, the
// waits that Turn returns do not grow any more, so some clients get no token when they try again.
const MaxRefused = 100

// NewLimiter returns a limiter for a rate, with the burst of [BurstSeconds].
func NewLimiter(perSecond float64) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(perSecond), burst(perSecond))
}

// Limiters has a limiter for each key, such as an address. The limiter of a key that has not been
// used for long is deleted: it is full again, like a new limiter. Limiters is safe for concurrent
// use.
type Limiters[K comparable] struct {
	perSecond float64

	mu sync.Mutex
	// current has the keys that were used since the time `turned`. At that time, current became
	// previous, and a new empty map became current. If a key in previous is used again, it is
	// copied to current.
	current, previous map[K]*allowance
	turned            time.Time
}

// maxLimiters is the maximum number of keys in current and in previous. It limits the memory that
// an attacker with many addresses can occupy: if there are more keys, the oldest keys are deleted
// early.
const maxLimiters = 1 << 16

// allowance has the limiter of one key.
type allowance struct {
	limiter *rate.Limiter
	// refused estimates how many clients of the key were refused and will try again.
	refused int
}

// NewLimiters returns limiters with a rate for each key; 0 means no limit.
func NewLimiters[K comparable](perSecond float64) *Limiters[K] {
	return &Limiters[K]{perSecond: perSecond, current: map[K]*allowance{}}
}

// Take takes one token of a key and returns 0. If the key has no token, Take returns the time until
// it has one.
func (ls *Limiters[K]) Take(key K, now time.Time) (wait time.Duration) {
	if ls.perSecond <= 0 {
		return 0
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return Take(ls.allowanceOf(key, now).limiter, now)
}

// Turn does what Take does, for clients that try again after the returned wait. If several clients
// of a key are refused, each of the first [MaxRefused] clients gets a longer wait than the client
// before, so that the rate permits each client's request when the client tries again.
func (ls *Limiters[K]) Turn(key K, now time.Time) (wait time.Duration) {
	if ls.perSecond <= 0 {
		return 0
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	a := ls.allowanceOf(key, now)
	if wait = Take(a.limiter, now); wait == 0 {
		a.refused = max(0, a.refused-1)
		return 0
	}
	wait += time.Duration(float64(a.refused) / ls.perSecond * float64(time.Second))
	a.refused = min(a.refused+1, MaxRefused)
	return wait
}

// allowanceOf returns the allowance of a key. The caller must hold mu.
func (ls *Limiters[K]) allowanceOf(key K, now time.Time) *allowance {
	limit := burst(ls.perSecond)
	fills := time.Duration(float64(limit) / ls.perSecond * float64(time.Second))
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
			a = &allowance{limiter: NewLimiter(ls.perSecond)}
		}
		ls.current[key] = a
	}
	return a
}
