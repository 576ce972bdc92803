// Package limit identifies clients by their networks. It limits how often each client may act,
// how many bytes it may send, and how much it may use at once.
//
// The package does not know requests or frames. ADR 44 has the reasons.
package limit

import (
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// BurstSeconds is the burst of a rate in seconds: a rate of 5 a second allows a burst of 50.
const BurstSeconds = 10

// burst returns the burst of a rate, at least 1.
func burst(perSecond float64) int {
	return max(1, int(math.Ceil(BurstSeconds*perSecond)))
}

// Take removes one token from l and returns 0. If l has no token, it returns how long to wait
// for the next.
func Take(l *rate.Limiter, now time.Time) (wait time.Duration) {
	r := l.ReserveN(now, 1)
	if wait = r.DelayFrom(now); wait > 0 {
		r.CancelAt(now)
	}
	return wait
}

// MaxRefused is the largest number of refusals that are counted for a key. More refusals in a
// row mean that the client ignores the waits that it gets.
const MaxRefused = 100

// NewLimiter returns a limiter for a rate, with the burst of [BurstSeconds].
func NewLimiter(perSecond float64) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(perSecond), burst(perSecond))
}

// Limiters has a limiter for each key, such as an address. It deletes a limiter once its key
// was unused for so long that the limiter is full again: a new limiter would behave the same.
// It is safe for concurrent use.
type Limiters[K comparable] struct {
	perSecond float64

	mu sync.Mutex
	// current has the keys used since turned. previous has the keys used in the period before
	// turned. A key in previous that is used again is copied to current.
	current, previous map[K]*allowance
	turned            time.Time
}

// maxLimiters is the largest number of keys in each of the two maps. It bounds the memory that
// an attacker with many addresses can use: with more keys, the oldest are deleted early.
const maxLimiters = 1 << 16

// allowance is the limit of one key.
type allowance struct {
	limiter *rate.Limiter
	// refused estimates how many refused clients will still try again.
	refused int
}

// NewLimiters returns limiters with a rate for each key; 0 means no limit.
func NewLimiters[K comparable](perSecond float64) *Limiters[K] {
	return &Limiters[K]{perSecond: perSecond, current: map[K]*allowance{}}
}

// Take removes one token of a key and returns 0, or returns how long to wait for the next.
func (ls *Limiters[K]) Take(key K, now time.Time) (wait time.Duration) {
	if ls.perSecond <= 0 {
		return 0
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return Take(ls.of(key, now).limiter, now)
}

// Turn does what Take does, for clients that try again after the returned wait. Consecutive
// refusals get different waits, so that each client gets a token when it returns.
func (ls *Limiters[K]) Turn(key K, now time.Time) (wait time.Duration) {
	if ls.perSecond <= 0 {
		return 0
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	a := ls.of(key, now)
	if wait = Take(a.limiter, now); wait == 0 {
		a.refused = max(0, a.refused-1)
		return 0
	}
	wait += time.Duration(float64(a.refused) / ls.perSecond * float64(time.Second))
	a.refused = min(a.refused+1, MaxRefused)
	return wait
}

// of returns the allowance of a key. The caller holds the mutex.
func (ls *Limiters[K]) of(key K, now time.Time) *allowance {
	most := burst(ls.perSecond)
	fills := time.Duration(float64(most) / ls.perSecond * float64(time.Second))
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
