// Package limit tells clients apart by their networks, and limits how often each
// may do something and how many bytes it may send.
//
// It does not know requests or frames. ADR 44 has the reasons.
package limit

import (
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// BurstSeconds is how many seconds' worth of a rate may be used at once.
const BurstSeconds = 10

// burst returns the burst of a rate.
func burst(perSecond float64) int {
	return max(1, int(math.Ceil(BurstSeconds*perSecond)))
}

// Take takes one token of l, or returns how long until there is one.
func Take(l *rate.Limiter, now time.Time) (wait time.Duration) {
	r := l.ReserveN(now, 1)
	if wait = r.DelayFrom(now); wait > 0 {
		r.CancelAt(now)
	}
	return wait
}

// MaxRefused is the most refusals of a key that are counted. A client that was
// refused more often in a row ignores the refusals.
const MaxRefused = 100

// NewLimiter returns a limiter of a rate.
func NewLimiter(perSecond float64) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(perSecond), burst(perSecond))
}

// Limiters has a limiter for each key, such as an address. It forgets a key that
// was not used for as long as a limiter takes to fill: a new limiter is equal. It
// is safe for concurrent use.
type Limiters[K comparable] struct {
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

// NewLimiters returns limiters with a rate; 0 is no limit.
func NewLimiters[K comparable](perSecond float64) *Limiters[K] {
	return &Limiters[K]{perSecond: perSecond, current: map[K]*allowance{}}
}

// Take counts one for a key, or returns how long to wait.
func (ls *Limiters[K]) Take(key K, now time.Time) (wait time.Duration) {
	if ls.perSecond <= 0 {
		return 0
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return Take(ls.of(key, now).limiter, now)
}

// Turn is Take for clients that try again after the wait that they get. Consecutive
// refusals get different waits, so that each client finds room when it returns.
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
