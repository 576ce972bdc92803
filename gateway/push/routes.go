package push

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/badged/badged/internal/wait"
)

const (
	// slowInFlight is the most pushes in flight that slow routes share. Users choose the
	// hosts of endpoints, so a limit for each route would bound nothing.
	slowInFlight = inFlight / 2
	// slowAnswer is how long the answer of a fast route takes at most.
	slowAnswer = time.Second
	// userInFlight is the most pushes in flight of one user, who may have outbound.MaxDevices
	// devices on different routes.
	userInFlight = 16
	// busyHold is how long a device waits for others that are in flight.
	busyHold = time.Second
	// A route rests after that many failures in a row without an answer, longer
	// with each.
	unreachable     = 10
	unreachableRest = 5 * time.Second
	unreachableLast = 5 * time.Minute
	// idleRoutes is the number of routes from which idle ones are forgotten: users choose
	// the hosts.
	idleRoutes = 10_000
)

// routes are the routes and users of an app that have pushes in flight, and what is known
// of routes. It is safe for concurrent use.
type routes struct {
	// slowLimit is the most slow pushes in flight.
	slowLimit int

	mu     sync.Mutex
	byName map[string]*route
	// users have pushes in flight: how many.
	users map[string]int
	// young are the pushes that are not slow, oldest first.
	young *list.List
	// slow is how many pushes are slow.
	slow int
	// all is until when everything rests.
	all time.Time
}

type route struct {
	until    time.Time
	inFlight int
	// slow is how many of these are slow.
	slow     int
	failures int
	// fast is whether the last answer was. Until the first answer it is false.
	fast bool
}

// flight is a push in flight. It is slow, and in routes.young no more, if its route was
// slow when it entered, or if it takes longer than slowAnswer.
type flight struct {
	route *route
	name  string
	user  string
	start time.Time
	young *list.Element // nil if it is slow
}

// newRoutes returns the routes of an app. APNs and FCM have no other vendor beside
// them that would need room.
func newRoutes(p Platform) *routes {
	rs := &routes{slowLimit: inFlight, byName: map[string]*route{}, users: map[string]int{}, young: list.New()}
	if p == WebPush || p == UnifiedPush {
		rs.slowLimit = slowInFlight
	}
	return rs
}

// enter counts a push of a user. It returns for how long the push must wait if its route
// rests, or if there is no room for the route or the user.
func (rs *routes) enter(name, user string) (_ *flight, wait time.Duration) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	now := time.Now()
	rs.age(now)
	isSlow := true
	if r := rs.byName[name]; r != nil {
		if wait := r.until.Sub(now); wait > 0 {
			return nil, wait
		}
		isSlow = !r.fast || 4*r.slow > r.inFlight
	}
	if rs.users[user] >= userInFlight || isSlow && rs.slow >= rs.slowLimit {
		return nil, busyHold
	}
	r := rs.get(name)
	f := &flight{route: r, name: name, user: user, start: now}
	r.inFlight++
	rs.users[user]++
	if isSlow {
		rs.markSlow(f, 1)
	} else {
		f.young = rs.young.PushBack(f)
	}
	return f, 0
}

// age marks the pushes that have become slow.
func (rs *routes) age(now time.Time) {
	for e := rs.young.Front(); e != nil; e = rs.young.Front() {
		f, _ := e.Value.(*flight)
		if now.Sub(f.start) <= slowAnswer {
			return
		}
		rs.young.Remove(e)
		f.young = nil
		rs.markSlow(f, 1)
	}
}

// markSlow counts a slow push, or discounts it.
func (rs *routes) markSlow(f *flight, n int) {
	rs.slow += n
	f.route.slow += n
}

// leave counts what became of a push.
func (rs *routes) leave(f *flight, outcome Outcome) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	now, r := time.Now(), f.route
	if f.young != nil {
		rs.young.Remove(f.young)
	} else {
		rs.markSlow(f, -1)
	}
	r.inFlight--
	if rs.users[f.user]--; rs.users[f.user] == 0 {
		delete(rs.users, f.user)
	}
	isFast := now.Sub(f.start) <= slowAnswer
	switch {
	case !outcome.Unreachable:
		r.failures, r.fast = 0, isFast
	case !isFast:
		r.fast = false
		fallthrough
	default:
		if r.failures++; r.failures >= unreachable && now.After(r.until) {
			r.until = now.Add(backoff(r.failures-unreachable, unreachableRest, unreachableLast))
		}
	}
	if r.inFlight == 0 && r.failures == 0 && !r.fast && now.After(r.until) {
		delete(rs.byName, f.name) // it is as an unknown one
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
	pause := time.Until(rs.all)
	rs.mu.Unlock()
	return pause <= 0 || wait.For(ctx, pause) == nil
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
	r = &route{}
	rs.byName[name] = r
	return r
}
