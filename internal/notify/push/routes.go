package push

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/badged/badged/internal/base/wait"
)

const (
	// slowInFlight is the maximum total number of slow pushes in flight of an app of Web Push or
	// UnifiedPush. A limit for each route would not suffice, because users choose the hosts of
	// endpoints.
	slowInFlight = inFlight / 2
	// slowAnswer is the duration above which a push counts as slow.
	slowAnswer = time.Second
	// userInFlight is the maximum number of pushes in flight of one user. A user may have up to
	// outbound.MaxDevices devices, on different routes.
	userInFlight = 16
	// busyHold is the delay of a push if too many other pushes are in flight.
	busyHold = time.Second
	// unreachable is the number of consecutive pushes without an answer after which a route
	// pauses. The first pause takes unreachableRest. With further failures the pauses grow, up to
	// unreachableLast.
	unreachable     = 10
	unreachableRest = 5 * time.Second
	unreachableLast = 5 * time.Minute
	// idleRoutes limits the number of routes in memory: at this number, get deletes the routes
	// without pushes in flight and without a pause. Users choose the hosts of endpoints, so they
	// could otherwise create routes without limit.
	idleRoutes = 10_000
)

// routes limits the slow pushes in flight of an app, and the pushes in flight of each user. It also
// has the state of each route; a route is a vendor's server. routes is safe for concurrent use.
type routes struct {
	// slowLimit is the maximum number of slow pushes in flight.
	slowLimit int

	mu     sync.Mutex
	byName map[string]*route
	// users has the number of pushes in flight of each user.
	users map[string]int
	// young has the pushes in flight that are not slow, oldest first.
	young *list.List
	// slow is the number of slow pushes in flight.
	slow int
	// all is the end of the pause of all routes.
	all time.Time
}

type route struct {
	until    time.Time
	inFlight int
	// slow is the number of slow pushes among inFlight.
	slow     int
	failures int
	// fast is true if the last answer came within slowAnswer. It is false before the first answer.
	fast bool
}

// flight is a push in flight. A push is slow if its route was slow when the push began, or if the
// push has taken longer than slowAnswer. Pushes that are not slow are in routes.young.
type flight struct {
	route *route
	name  string
	user  string
	start time.Time
	young *list.Element // nil if the push is slow
}

// newRoutes returns the routes of an app. If the app has a single vendor (APNs or FCM), all of
// its inFlight pushes may be slow.
func newRoutes(p Platform) *routes {
	rs := &routes{slowLimit: inFlight, byName: map[string]*route{}, users: map[string]int{}, young: list.New()}
	if p == WebPush || p == UnifiedPush {
		rs.slowLimit = slowInFlight
	}
	return rs
}

// enter counts a push of a user as in flight. But if the route pauses, if the user has too many
// pushes in flight, or if the route is slow and the app has too many slow pushes in flight, enter
// does not count the push: it returns nil and how long to delay the push.
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

// age marks the pushes in flight as slow that have taken longer than slowAnswer.
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

// markSlow adds n to two counts of slow pushes in flight: the count of the app, and the count of
// the push's route.
func (rs *routes) markSlow(f *flight, n int) {
	rs.slow += n
	f.route.slow += n
}

// leave records that a push has ended, and updates the state of the push's route by the outcome.
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
		delete(rs.byName, f.name) // without an entry, the route has the same state
	}
}

// pause makes a route pause for the duration `d`. If `all` is true, all routes of the app pause.
// The result is true if this begins a pause, and false if the route was pausing already.
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

// waitForAll waits until the pause of all routes has ended. It returns false if ctx is done.
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
