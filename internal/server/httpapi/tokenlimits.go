package httpapi

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/badged/badged/internal/base/describe"
	"github.com/badged/badged/internal/base/limit"
	"github.com/badged/badged/internal/cluster"
)

// tokenLimits limits requests with tokens of users: the rate of requests and the number of
// concurrent queries, for each user and for each address. So an app that sends requests in a loop
// cannot use up the database connections that all users share. Requests with keys have no such
// limits, since keys belong to backends. tokenLimits is safe for concurrent use.
type tokenLimits struct {
	users     *limit.Limiters[string]
	addresses *limit.Limiters[netip.Prefix]
	ofUser    *limit.AtOnce[string]
	ofAddress *limit.AtOnce[netip.Prefix]
	ofAll     *limit.AtOnce[struct{}]
}

const (
	// DefaultReads is the default rate of reads of a user, in requests per second.
	DefaultReads = 20
	// deviceRequests is the rate of a user's requests about devices, in requests per second. Such a
	// request writes rows and starts a push. A burst may have the requests of ten seconds, since an
	// app that is restarted several times registers its device each time.
	deviceRequests = 2
	// usersOfAnAddress is the permitted rate of requests from one address, divided by the rate of
	// one user.
	usersOfAnAddress = 10
	// userAtOnce limits the concurrent queries of a user, and addressAtOnce the concurrent queries
	// from an address. devicesAtOnce limits the concurrent queries about devices for all users
	// together. All other queries of users read through [Config].AppBadges, which may have a limit
	// of its own. A query above a limit waits for up to placeWait, then fails.
	userAtOnce    = 2
	addressAtOnce = 2
	devicesAtOnce = 2
	placeWait     = 2 * time.Second
)

// newTokenLimits returns limits. perSecond is the rate of each user, in requests per second. `all`
// is the maximum number of concurrent queries of all users together. For both, 0 means no limit.
func newTokenLimits(perSecond float64, all int) *tokenLimits {
	l := &tokenLimits{users: limit.NewLimiters[string](perSecond), addresses: limit.NewLimiters[netip.Prefix](usersOfAnAddress * perSecond)}
	user, address := userAtOnce, addressAtOnce
	if perSecond <= 0 {
		user, address = 0, 0
	}
	l.ofUser, l.ofAddress = limit.NewAtOnce[string](user, placeWait), limit.NewAtOnce[netip.Prefix](address, placeWait)
	l.ofAll = limit.NewAtOnce[struct{}](all, placeWait)
	return l
}

// take counts a request against the rates of its user and address. If a rate is exceeded, take
// fails, and the answer says how long to wait. If the address is unknown (invalid), only the rate
// of the user applies.
func (l *tokenLimits) take(userID string, address netip.Prefix) error {
	now := time.Now()
	if wait := l.users.Take(userID, now); wait > 0 {
		return tooMany("this user's token", wait)
	}
	if address.IsValid() {
		if wait := l.addresses.Take(address, now); wait > 0 {
			return tooMany("tokens from this address", wait)
		}
	}
	return nil
}

// asker is the user whose token authenticates a request, with the limits that apply. A request with
// a key has no asker.
type asker struct {
	limits  *tokenLimits
	userID  string
	address netip.Prefix
}

type askerKey struct{}

// within runs a query as soon as the limits on concurrent queries permit it. It occupies slots of
// these limits only during the query: a request has no slot while it waits for folding, for its
// body or for its client. If the request has a key, within runs the query at once.
func within[T any](ctx context.Context, a *API, query func(isUser bool) (T, error)) (result T, err error) {
	by, isUser := ctx.Value(askerKey{}).(*asker)
	if !isUser {
		return query(false)
	}
	leave, ok := by.limits.ofUser.Enter(ctx, by.userID)
	if !ok {
		return result, tooMany("this user's token at once", time.Second)
	}
	defer leave()
	if by.address.IsValid() {
		if leave, ok = by.limits.ofAddress.Enter(ctx, by.address); !ok {
			return result, tooMany("tokens from this address at once", time.Second)
		}
		defer leave()
	}
	if leave, ok = by.limits.ofAll.Enter(ctx, struct{}{}); !ok {
		return result, tooMany("tokens of users at once", time.Second)
	}
	defer leave()
	if err := a.stillAuthorized(ctx); err != nil { // the token may have become invalid while the query waited for a slot
		return result, err
	}
	return query(true)
}

// read runs a query of badges within the limits of the user; see within.
func read[T any](ctx context.Context, a *API, query func(from Badges) (T, error)) (T, error) {
	result, err := within(ctx, a, func(isUser bool) (T, error) {
		if isUser {
			return query(a.cfg.AppBadges)
		}
		return query(a.cfg.Badges)
	})
	if errors.Is(err, cluster.ErrBusy) {
		return result, tooMany("keys or tokens of all users at once", time.Second)
	}
	if ended := a.stillAuthorized(ctx); ended != nil { // the key or token may have become invalid while the query waited for a connection
		return result, ended
	}
	return result, err
}

func tooMany(subject string, wait time.Duration) error {
	return &problem{
		Status: http.StatusTooManyRequests, Detail: "too many requests with " + subject + "; repeat the request after Retry-After",
		retryAfter: strconv.Itoa(int(math.Ceil(wait.Seconds()))),
	}
}

// limited describes the answer 429 of a route; limits says what the limits are.
func (*API) limited(limits string) describe.Answer {
	answer := describe.Problem(
		http.StatusTooManyRequests, problem{}, "Too many requests with tokens of users: "+limits+". Keys have no such rate. Repeat the request after `Retry-After`.",
		`{"type":"urn:badged:problem","title":"Too Many Requests","status":429,"detail":"too many requests with this user's token; repeat the request after Retry-After"}`,
	)
	answer.Headers = []describe.Param{{Name: "Retry-After", Doc: "Seconds to wait before repeating the request.", Required: true, Example: "1"}}
	return answer
}
