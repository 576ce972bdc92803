package httpapi

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/badged/badged/internal/describe"
	"github.com/badged/badged/internal/limit"
	"github.com/badged/badged/internal/shards"
)

// tokenLimits limit requests with tokens of users: each user and each address has a rate,
// and a number of queries at once. One app in a loop must not take the connections to the
// database, or write the rows, that all share. Keys have no rate: they are those of
// backends. It is safe for concurrent use.
type tokenLimits struct {
	users     *limit.Limiters[string]
	addresses *limit.Limiters[netip.Prefix]
	ofUser    *limit.AtOnce[string]
	ofAddress *limit.AtOnce[netip.Prefix]
	ofAll     *limit.AtOnce[struct{}]
}

const (
	// DefaultReads is the rate of reads of a user, a second.
	DefaultReads = 20
	// deviceRequests is the rate of requests of a user for devices, which write rows and
	// begin pushes. Ten seconds' worth may come at once: an app registers its device when
	// it starts.
	deviceRequests = 2
	// usersOfAnAddress is how many times the rate of a user an address has.
	usersOfAnAddress = 10
	// userAtOnce and addressAtOnce are how many of their queries run at the same time, and
	// devicesAtOnce of all that concern devices; AppBadges limits all reads. Others wait for
	// placeWait.
	userAtOnce    = 2
	addressAtOnce = 2
	devicesAtOnce = 2
	placeWait     = 2 * time.Second
)

// newTokenLimits returns limits with a rate for each user, and a number of queries at once
// for all; 0 is no limit.
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

// take counts a request, or returns an error that says when to come back. An address that is
// not valid is not known, and has no limit.
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

// asker is the user whose token a request has; requests with keys have none.
type asker struct {
	limits  *tokenLimits
	userID  string
	address netip.Prefix
}

type askerKey struct{}

// within runs a query when there are places for the asker of its context. A request holds
// none while it waits for folding, its body or its client.
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
	if err := a.still(ctx); err != nil { // it may have waited
		return result, err
	}
	return query(true)
}

// read runs a query of badges within the limits of who asks.
func read[T any](ctx context.Context, a *API, query func(from Badges) (T, error)) (T, error) {
	result, err := within(ctx, a, func(isUser bool) (T, error) {
		if isUser {
			return query(a.cfg.AppBadges)
		}
		return query(a.cfg.Badges)
	})
	if errors.Is(err, shards.ErrBusy) {
		return result, tooMany("keys or tokens of all users at once", time.Second)
	}
	if ended := a.still(ctx); ended != nil { // it may have waited for a connection
		return result, ended
	}
	return result, err
}

func tooMany(what string, wait time.Duration) error {
	return &problem{
		Status: http.StatusTooManyRequests, Detail: "too many requests with " + what + "; repeat the request after Retry-After",
		retryAfter: strconv.Itoa(int(math.Ceil(wait.Seconds()))),
	}
}

// limited returns the answer to a request beyond the limits.
func (*API) limited(limits string) describe.Answer {
	answer := describe.Problem(
		http.StatusTooManyRequests, problem{}, "Too many requests with tokens of users: "+limits+". Keys have no such rate. Repeat the request after `Retry-After`.",
		`{"type":"urn:badged:problem","title":"Too Many Requests","status":429,"detail":"too many requests with this user's token; repeat the request after Retry-After"}`,
	)
	answer.Headers = []describe.Param{{Name: "Retry-After", Doc: "Seconds to wait before repeating the request.", Required: true, Example: "1"}}
	return answer
}
