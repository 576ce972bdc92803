package httpapi

import (
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// userLimits limits the requests that each user makes with a token of their own. A
// request of an app can write rows and begin pushes, so one app in a loop must not take
// what all share. Publishers are not limited. It is safe for concurrent use.
type userLimits struct {
	mu sync.Mutex
	// current has the users seen since turned, previous others of the period before.
	current, previous map[string]*rate.Limiter
	turned            time.Time
}

const (
	// userRequests is how many requests a second a user may make in the long run, and
	// userBurst at once: an app registers its device when it starts.
	userRequests = 1
	userBurst    = 20
	// userFills is when a limiter is full again, and may be forgotten.
	userFills = userBurst / userRequests * time.Second
	// maxUsers bounds how many users are remembered in each of two maps: the oldest are
	// forgotten early.
	maxUsers = 1 << 16
)

func newUserLimits() *userLimits { return &userLimits{current: map[string]*rate.Limiter{}} }

// check counts a request of a user, or returns an error that says when to come back.
func (l *userLimits) check(userID string) error {
	wait := l.take(userID, time.Now())
	if wait == 0 {
		return nil
	}
	return &problem{
		Status: http.StatusTooManyRequests, Detail: "too many requests with this user's token; repeat the request after Retry-After",
		retryAfter: strconv.Itoa(int(math.Ceil(wait.Seconds()))),
	}
}

// take counts a request, or returns how long to wait.
func (l *userLimits) take(userID string, now time.Time) (wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if age := now.Sub(l.turned); age >= userFills || len(l.current) >= maxUsers {
		l.previous = l.current
		if age >= 2*userFills {
			l.previous = nil
		}
		l.current, l.turned = map[string]*rate.Limiter{}, now
	}
	limiter, ok := l.current[userID]
	if !ok {
		if limiter, ok = l.previous[userID]; !ok {
			limiter = rate.NewLimiter(userRequests, userBurst)
		}
		l.current[userID] = limiter
	}
	r := limiter.ReserveN(now, 1)
	if wait = r.DelayFrom(now); wait > 0 {
		r.CancelAt(now)
	}
	return wait
}
