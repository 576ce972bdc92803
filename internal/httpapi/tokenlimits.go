package httpapi

import (
	"context"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/badged/badged/internal/describe"
	"github.com/badged/badged/internal/limit"
)

// tokenLimits limit requests with tokens of users: each user and each address has a rate
// and a number at once. One app in a loop must not take the connections to the database,
// or write the rows, that all share. Keys are not limited: they are those of backends. It
// is safe for concurrent use.
type tokenLimits struct {
	users     *limit.Limiters[string]
	addresses *limit.Limiters[netip.Prefix]
	ofUser    *limit.AtOnce[string]
	ofAddress *limit.AtOnce[netip.Prefix]
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
	// userAtOnce and addressAtOnce are how many requests run at the same time: an address
	// has half of the connections to the database. Others wait for placeWait.
	userAtOnce    = 4
	addressAtOnce = 8
	placeWait     = 2 * time.Second
)

// newTokenLimits returns limits with a rate for each user; 0 is no limit.
func newTokenLimits(perSecond float64) *tokenLimits {
	l := &tokenLimits{users: limit.NewLimiters[string](perSecond), addresses: limit.NewLimiters[netip.Prefix](usersOfAnAddress * perSecond)}
	user, address := userAtOnce, addressAtOnce
	if perSecond <= 0 {
		user, address = 0, 0
	}
	l.ofUser, l.ofAddress = limit.NewAtOnce[string](user, placeWait), limit.NewAtOnce[netip.Prefix](address, placeWait)
	return l
}

// enter admits a request, or returns an error that says when to come back. The caller calls
// leave at its end. An address that is not valid is not known, and has no limit.
func (l *tokenLimits) enter(ctx context.Context, userID string, address netip.Prefix) (leave func(), err error) {
	now := time.Now()
	if wait := l.users.Take(userID, now); wait > 0 {
		return nil, tooMany("this user's token", wait)
	}
	if address.IsValid() {
		if wait := l.addresses.Take(address, now); wait > 0 {
			return nil, tooMany("tokens from this address", wait)
		}
	}
	leaveUser, ok := l.ofUser.Enter(ctx, userID)
	if !ok {
		return nil, tooMany("this user's token at once", time.Second)
	}
	if !address.IsValid() {
		return leaveUser, nil
	}
	leaveAddress, ok := l.ofAddress.Enter(ctx, address)
	if !ok {
		leaveUser()
		return nil, tooMany("tokens from this address at once", time.Second)
	}
	return func() {
		leaveAddress()
		leaveUser()
	}, nil
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
		http.StatusTooManyRequests, problem{}, "Too many requests with tokens of users: "+limits+". Keys have no such limit. Repeat the request after `Retry-After`.",
		`{"type":"urn:badged:problem","title":"Too Many Requests","status":429,"detail":"too many requests with this user's token; repeat the request after Retry-After"}`,
	)
	answer.Headers = []describe.Param{{Name: "Retry-After", Doc: "Seconds to wait before repeating the request.", Required: true, Example: "1"}}
	return answer
}
