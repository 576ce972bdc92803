package httpapi

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/badged/badged/internal/base/describe"
	"github.com/badged/badged/internal/base/rfc3339"
)

// Disconnects closes the connections of users and revokes their tokens.
type Disconnects interface {
	// Disconnect closes the connections of a user in all gateways, and revokes the tokens that
	// `revoke` selects. `by` is the name of the API key. Disconnect returns a time: all tokens of
	// this user that were issued before this time are now refused. The time is the latest of all
	// revocations of the user, or zero if there are none. If the error is nil, the revocation is
	// durable and in force. Disconnect fails with ErrFuture if revoke.Before is more than 5 seconds
	// in the future, and with ErrNotInForce if the revocation is stored but this process cannot
	// read it.
	Disconnect(ctx context.Context, by, userID string, revoke Revoke) (time.Time, error)
}

// Revoke says which tokens of a user to revoke. If Now is true, all tokens that were issued until
// now, by the clock of the database, are revoked. Otherwise the tokens that were issued before
// Before are revoked. The zero value revokes no tokens.
type Revoke struct {
	Now    bool
	Before time.Time
}

// ErrFuture is returned if Before is more than 5 seconds in the future: it would revoke tokens
// that are not yet issued.
var ErrFuture = errors.New("revoke_before must not be in the future: tokens that are issued until then would be refused")

// ErrNotInForce is returned if a revocation is stored, but this process cannot read it and so does
// not apply it yet.
var ErrNotInForce = errors.New("the request is stored but not in force yet, since badged.revocations cannot be read: tokens that it revokes may still be accepted; repeat the request")

// disconnectBody says which tokens a request revokes, besides closing connections.
type disconnectBody struct {
	Revoke       bool   `json:"revoke,omitempty" doc:"Revoke all tokens of the user that were issued before this request."`
	RevokeBefore string `json:"revoke_before,omitempty" format:"date-time" doc:"Revoke the tokens of the user that were issued (iat) before this time. The time may be at most 5 seconds in the future."`
}

// disconnectAnswer is the answer to a disconnectBody.
type disconnectAnswer struct {
	UserID        string     `json:"user_id" doc:"The user."`
	RevokedBefore *time.Time `json:"revoked_before,omitempty" doc:"Tokens of the user that were issued before this time are refused. It is the latest time of all revocations of the user. Absent if no token is revoked."`
}

// disconnect closes the connections of a user, and revokes the tokens that the body names.
func (a *API) disconnect(w http.ResponseWriter, r *http.Request, caller grant) (answer, error) {
	user := r.PathValue("user")
	if err := caller.key.CheckDisconnect(user); err != nil {
		return answer{}, keyProblem(err)
	}
	body, err := a.readBody(w, r, maxSmallBody)
	if err != nil {
		return answer{}, err
	}
	revoke, err := revokedBy(body)
	if err != nil {
		return answer{}, err
	}
	holds, err := a.cfg.Disconnects.Disconnect(r.Context(), caller.key.Name, user, revoke)
	switch {
	case errors.Is(err, ErrFuture):
		return answer{}, badRequest(err.Error())
	case errors.Is(err, ErrNotInForce):
		a.log.ErrorContext(r.Context(), "a disconnect is not in force yet", "error", err)
		return answer{}, &problem{Status: http.StatusServiceUnavailable, Detail: ErrNotInForce.Error(), retryAfter: "1"}
	case err != nil:
		return answer{}, err
	}
	ended := disconnectAnswer{UserID: user}
	if !holds.IsZero() {
		holds = holds.UTC()
		ended.RevokedBefore = &holds
	}
	return answer{http.StatusAccepted, ended}, nil
}

// revokedBy returns which tokens a request with the given body revokes.
func revokedBy(body []byte) (Revoke, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return Revoke{}, nil
	}
	var b disconnectBody
	if err := decodeStrict(body, &b); err != nil {
		return Revoke{}, badRequest(err.Error())
	}
	switch {
	case b.Revoke && b.RevokeBefore != "":
		return Revoke{}, badRequest("give revoke or revoke_before, not both")
	case b.Revoke || b.RevokeBefore == "":
		return Revoke{Now: b.Revoke}, nil
	}
	before, err := rfc3339.Parse(b.RevokeBefore)
	if err != nil {
		return Revoke{}, badRequest("revoke_before must be a time such as 2026-01-31T23:59:59Z")
	}
	return Revoke{Before: before}, nil
}

// disconnectRoutes returns the route that disconnects users.
func (a *API) disconnectRoutes() []describe.Route {
	const (
		revoke  = `{"revoke":true}`
		revoked = `{"user_id":"ada","revoked_before":"2026-03-02T09:30:00.512833Z"}`
		future  = `{"type":"urn:badged:problem","title":"Bad Request","status":400,"detail":"revoke_before must not be in the future: tokens that are issued until then would be refused"}`
	)
	return []describe.Route{
		a.restrict(disconnecting, nil, a.disconnect, describe.Route{
			Method: http.MethodPost, Path: "/v1/users/{user}/disconnect",
			Name: "disconnectUser", Group: GroupTokens, Summary: "Disconnect a user, and revoke tokens",
			Doc:    "Within a second all gateways close the connections of the user, and refuse revoked tokens. An empty body, or `{}`, revokes no tokens: the apps reconnect. A token without `iat` counts as issued before any revocation. Revocations survive restarts, and a later revocation never makes revoked tokens valid again.",
			Params: []describe.Param{userParam()},
			Body:   []describe.Content{{MediaType: "application/json", Model: disconnectBody{}, Example: revoke}},
			Answers: failures(
				describe.Answer{Status: http.StatusAccepted, Doc: "The disconnect is durable. It is in effect in the process that answers, and within a second in all other processes.", Content: describe.JSON(disconnectAnswer{}, revoked)},
				describe.Problem(http.StatusBadRequest, problem{}, "The body or a parameter is invalid; `detail` says which.", future),
				describe.Problem(http.StatusRequestTimeout, problem{}, tooSlow, ""),
				tooLarge(maxSmallBody),
				describe.Problem(http.StatusUnsupportedMediaType, problem{}, encoded, ""),
			),
		}),
	}
}
