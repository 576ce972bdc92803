package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/badged/badged/gateway"
	"github.com/badged/badged/gateway/protocol"
)

// sessions authenticates clients by opaque session tokens, which a store of
// your own looks up: a table, Redis, the introspection endpoint of a login
// service.
type sessions struct {
	lookUp func(ctx context.Context, token string) (userID string, expires time.Time, err error)
}

var errUnknown = errors.New("unknown token")

// Authenticate implements [gateway.Authenticator].
func (s sessions) Authenticate(ctx context.Context, token string) (gateway.Identity, error) {
	userID, expires, err := s.lookUp(ctx, token)
	switch {
	case errors.Is(err, errUnknown):
		return gateway.Identity{}, errUnknown // the client must log in again
	case err != nil:
		// The client tries again with the same token, and sees no internals.
		return gateway.Identity{}, gateway.ErrAuthenticatorAway
	case !time.Now().Before(expires):
		return gateway.Identity{}, gateway.ErrTokenExpired // the client comes back with a fresh one
	}
	return gateway.Identity{UserID: userID, ExpiresAt: expires}, nil
}

// An Authenticator for session tokens instead of JWTs. Its errors decide whether clients
// reconnect.
func ExampleAuthenticator() {
	var tokens gateway.Authenticator = sessions{func(_ context.Context, token string) (string, time.Time, error) {
		switch token {
		case "fresh":
			return "ada", time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC), nil
		case "old":
			return "ada", time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), nil
		case "while the store is down":
			return "", time.Time{}, errors.New("connection refused")
		}
		return "", time.Time{}, errUnknown
	}}
	for _, token := range []string{"fresh", "old", "while the store is down", "forged"} {
		id, err := tokens.Authenticate(context.Background(), token)
		switch {
		case err == nil:
			fmt.Printf("%s: %s until %d\n", token, id.UserID, id.ExpiresAt.Year())
		case errors.Is(err, gateway.ErrTokenExpired):
			fmt.Printf("%s: closed with %d\n", token, protocol.CloseTokenExpired)
		case errors.Is(err, gateway.ErrAuthenticatorAway):
			fmt.Printf("%s: closed with %d\n", token, protocol.CloseResync)
		default:
			fmt.Printf("%s: closed with %d\n", token, protocol.CloseBadToken)
		}
	}
	// Output:
	// fresh: ada until 2100
	// old: closed with 4202
	// while the store is down: closed with 4203
	// forged: closed with 4001
}
