package push

import (
	"context"
	"sync"
	"time"
)

const (
	// slowInFlight is the most pushes in flight of a push service that is slow: half of
	// the app's, so that a push service that hangs leaves the others as much. A
	// route is slow if its last answer took slowAnswer, or is so long ago.
	slowInFlight = inFlight / 2
	slowAnswer   = time.Second
	// busyHold is how long a device waits whose route has that many.
	busyHold = time.Second
	// A route rests after so many failures in a row without an answer, longer
	// with each.
	unreachable     = 10
	unreachableRest = 5 * time.Second
	unreachableLast = 5 * time.Minute
	// idleRoutes is the number of routes from which those without news are
	// forgotten: devices choose the hosts of UnifiedPush.
	idleRoutes = 10_000
)

// routes are the routes of an app that have pushes in flight, rest, or failed
// last. It is safe for concurrent use.
type routes struct {
	// slowLimit is the most pushes in flight of a slow route.
	slowLimit int

	mu     sync.Mutex
	byName map[string]*route
	// all is until when everything rests.
	all time.Time
}

type route struct {
	until    time.Time
	inFlight int
	failures int
	// answered is when the last answer came, or when the first push was sent.
	answered time.Time
	// slow is that answer's.
	slow bool
}

// newRoutes returns the routes of an app. APNs and FCM have no other vendor beside
// them that would need room.
func newRoutes(p Platform) *routes {
	rs := &routes{slowLimit: inFlight, byName: map[string]*route{}}
	if p == WebPush || p == UnifiedPush {
		rs.slowLimit = slowInFlight
	}
	return rs
}

// enter counts a push, unless it returns for how long the route rests.
func (rs *routes) enter(name string) (wait time.Duration) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r := rs.get(name)
	if wait := time.Until(r.until); wait > 0 {
		return wait
	}
	if r.inFlight >= rs.slowLimit && (r.slow || time.Since(r.answered) > slowAnswer) {
		return busyHold
	}
	r.inFlight++
	return 0
}

// leave counts what became of a push, and how long it took.
func (rs *routes) leave(name string, outcome Outcome, took time.Duration) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r := rs.get(name)
	r.inFlight--
	if !outcome.Unreachable {
		r.failures, r.answered, r.slow = 0, time.Now(), took > slowAnswer
	} else if r.failures++; r.failures >= unreachable && time.Now().After(r.until) {
		r.until = time.Now().Add(backoff(r.failures-unreachable, unreachableRest, unreachableLast))
	}
	if r.inFlight == 0 && r.failures == 0 && time.Now().After(r.until) {
		delete(rs.byName, name)
	}
}

// pause lets a route rest, or all of them. It reports whether none did before.
func (rs *routes) pause(name string, d time.Duration, all bool) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r, now := rs.get(name), time.Now()
	first, until := !r.until.After(now), now.Add(d)
	if until.After(r.until) {
		r.until = until
	}
	if all && until.After(rs.all) {
		rs.all = until
	}
	return first
}

// waitForAll waits while everything rests. It returns false if ctx is done.
func (rs *routes) waitForAll(ctx context.Context) bool {
	rs.mu.Lock()
	wait := time.Until(rs.all)
	rs.mu.Unlock()
	if wait <= 0 {
		return true
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (rs *routes) get(name string) *route {
	r := rs.byName[name]
	if r != nil {
		return r
	}
	if len(rs.byName) >= idleRoutes {
		now := time.Now()
		for name, r := range rs.byName {
			if r.inFlight == 0 && now.After(r.until) {
				delete(rs.byName, name)
			}
		}
	}
	r = &route{answered: time.Now()}
	rs.byName[name] = r
	return r
}
