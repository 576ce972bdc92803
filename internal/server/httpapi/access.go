package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/describe"
	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/internal/operations"
	"github.com/badged/badged/internal/server/auth"
	"github.com/badged/badged/internal/server/inbound"
	"github.com/badged/badged/internal/server/keyring"
)

// access says which API keys a route admits, and whether it also admits tokens of users.
type access struct {
	// act is a phrase for what the route does. It is used in errors such as "the key chat may not
	// publish".
	act string
	// kinds are the admitted kinds of keys.
	kinds []keyring.Kind
	// user is true if the route also admits tokens of the user who is named in its path.
	user bool
}

// The accesses of routes.
var (
	publishing = access{act: "publish", kinds: []keyring.Kind{keyring.Publisher, keyring.Admin}}
	reading    = access{act: "read badges", kinds: []keyring.Kind{keyring.Publisher, keyring.Reader, keyring.Admin}}
	readingOne = access{act: "read badges", kinds: reading.kinds, user: true}
	// A push shows the badge, so registering a device requires the right to read the badge.
	owning        = access{act: "use the devices of users", kinds: publishing.kinds, user: true}
	disconnecting = access{act: "disconnect users", kinds: publishing.kinds}
	operating     = access{act: "use the routes of admins", kinds: []keyring.Kind{keyring.Admin}}
)

// forAdmins reports whether the route admits only keys of admins.
func (s access) forAdmins() bool { return len(s.kinds) == 1 }

// schemes returns the names of the security schemes that apply to the route, for its description.
func (s access) schemes() []string {
	of := map[keyring.Kind]string{keyring.Publisher: PublisherAccess, keyring.Reader: ReaderAccess, keyring.Admin: AdminAccess}
	var names []string
	for _, kind := range s.kinds {
		names = append(names, of[kind])
	}
	if s.user {
		names = append(names, UserAccess)
	}
	return names
}

// restrict restricts a route to the keys, and to the tokens of users, that s admits. Requests with
// tokens are subject to `limits`. The route checks access only to the user in its path: if a request
// names users elsewhere, the handler must check whether the key permits access to them. The route
// refuses an invalid id of a user in its path, query parameters that r does not describe, and a body
// if r describes none.
func (a *API) restrict(s access, limits *tokenLimits, h handler, r describe.Route) describe.Route {
	ofUser, undescribed := strings.Contains(r.Path, "{user}"), refuseUndescribed(r)
	admit := func(w http.ResponseWriter, r *http.Request) (answer, error) {
		caller, err := a.grantOf(r, s)
		if err == nil {
			err = a.vouch(w, r, caller)
		}
		if err != nil {
			return answer{}, err
		}
		r = withGrant(r, caller)
		if caller.key == nil {
			asks := &asker{limits, caller.user.UserID, a.cfg.ClientOf(r)}
			if err := limits.take(asks.userID, asks.address); err != nil {
				return answer{}, err
			}
			r = r.WithContext(context.WithValue(r.Context(), askerKey{}, asks))
		}
		if reason := events.CheckID(r.PathValue("user")); ofUser && reason != "" {
			return answer{}, badRequest("user id " + reason)
		}
		if err := undescribed(r); err != nil {
			return answer{}, err
		}
		return h(w, r, caller)
	}
	r.Access = s.schemes()
	r.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch done, err := admit(w, r); {
		case err != nil:
			a.fail(w, r, err)
		case done.body != nil:
			writeJSON(w, cmp.Or(done.status, http.StatusOK), "application/json", done.body)
		case done.status != 0:
			w.WriteHeader(done.status)
		}
	})
	return r
}

// refuseUndescribed returns a function that fails if a request has query parameters, or a body, that
// its route does not describe.
func refuseUndescribed(route describe.Route) func(*http.Request) error {
	var parameters []string
	for _, p := range route.Params {
		if p.In == "query" {
			parameters = append(parameters, p.Name)
		}
	}
	return func(r *http.Request) error {
		if err := checkQuery(r, parameters); err != nil || len(route.Body) > 0 {
			return err
		}
		return refuseBody(r, parameters)
	}
}

// Strict returns a handler that another package calls before that package serves the route: like
// the routes of this package, it refuses query parameters and a body that are not described.
func Strict(route describe.Route) http.Handler {
	undescribed := refuseUndescribed(route)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == route.Method { // the handler refuses other methods
			if err := undescribed(r); err != nil {
				new(API).fail(w, r, err)
				return
			}
		}
		route.Handler.ServeHTTP(w, r)
	})
}

// forReaders restricts a route to keys that may read the badge of the user in the path, and to
// tokens of this user.
func (a *API) forReaders(h handler, r describe.Route) describe.Route {
	r.Answers = append(r.Answers, a.limited(fmt.Sprintf("each process accepts `--reads-per-second` requests per second of a user (%d by default), with bursts of ten times as many, and carries out %d requests of a user at the same time; for an address the rate is %d times as high, with %d requests at the same time; all users together use at most a fifth of the connections to the database", DefaultReads, userAtOnce, usersOfAnAddress, addressAtOnce)))
	return a.restrict(readingOne, a.reads, h, r)
}

// forOwners restricts a route to tokens of the user in the path, and to keys of publishers and
// admins that may read the user's badge. It refuses tokens that are restricted to some categories,
// since a push shows numbers and messages of all categories.
func (a *API) forOwners(h handler, r describe.Route) describe.Route {
	return a.restrict(owning, a.deviceRequests, func(w http.ResponseWriter, r *http.Request, caller grant) (answer, error) {
		if caller.user.Categories != nil {
			return answer{}, &problem{Status: http.StatusForbidden, Detail: "the token is restricted to categories, but devices get the numbers of all categories: use a token without badged_categories"}
		}
		return h(w, r, caller)
	}, r)
}

// actionTimeout limits the time of an action of an operator.
const actionTimeout = 30 * time.Second

// forOperators restricts a route to admins. h continues if the client disconnects, so that the audit
// trail records the result.
func (a *API) forOperators(h handler, r describe.Route) describe.Route {
	return a.restrict(operating, nil, func(w http.ResponseWriter, r *http.Request, caller grant) (answer, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), actionTimeout)
		defer cancel()
		return h(w, r.WithContext(ctx), caller)
	}, r)
}

// grantOf returns the key or token of a request. It fails if s does not admit this key or token. If
// s admits tokens of users, the route is about the user in the path; then grantOf also fails if the
// key or token does not permit reading the state of this user.
func (a *API) grantOf(r *http.Request, s access) (caller grant, err error) {
	secret, err := bearer(r)
	if err != nil {
		return caller, err
	}
	if !s.user {
		wrong := "the key is not one of a publisher: it must be in --publisher-keys or --keys-file"
		switch {
		case s.forAdmins():
			wrong = "the key is not one of an admin"
		case looksLikeToken(secret):
			wrong = "this looks like a user's token; to " + s.act + ", use a publisher's key"
		}
		caller.key, err = a.keyOf(r, s, secret, wrong)
		return caller, err
	}
	user := r.PathValue("user")
	var key *keyring.Key
	if !looksLikeToken(secret) {
		key, err = a.keyOf(r, s, secret, "neither a publisher's key nor a user's token")
	} else if found, valid := a.cfg.Keys.Find(secret); found != nil {
		key, err = found, admitted(s, found, valid, nil)
	}
	if err != nil {
		return caller, err
	}
	if key != nil {
		return grant{key: key}, keyProblem(key.CheckRead(user))
	}
	id, err := a.cfg.Tokens.Authenticate(r.Context(), secret)
	switch {
	case errors.Is(err, auth.ErrKeysAway):
		return caller, &problem{Status: http.StatusServiceUnavailable, Detail: err.Error(), retryAfter: "5"}
	case errors.As(err, new(*auth.PartialReadError)):
		return caller, &problem{Status: http.StatusServiceUnavailable, Detail: err.Error(), retryAfter: "1"}
	}
	if err != nil {
		if a.cfg.BadToken != nil && !errors.Is(err, auth.ErrExpired) {
			a.cfg.BadToken(a.cfg.ClientOf(r))
		}
		return caller, unauthorized(err.Error())
	}
	if id.UserID != user {
		return caller, &problem{Status: http.StatusForbidden, Detail: "a user's token is for that user only"}
	}
	return grant{user: id}, nil
}

// keyOf returns the key that has the given secret, if the route admits this key. If no key has the
// secret, keyOf returns an error with the text `wrong`.
func (a *API) keyOf(r *http.Request, s access, secret, wrong string) (*keyring.Key, error) {
	tries, forAdmins := a.publisherTries, s.forAdmins()
	if forAdmins {
		tries = a.adminTries
	}
	var key *keyring.Key
	var valid bool
	err := tries.check(r.Context(), a.cfg.ClientOf(r), func() bool {
		key, valid = a.cfg.Keys.Find(secret)
		// On routes for admins, count a valid key of another kind as wrong. A valid key exempts its
		// address from the limit on wrong keys, so the owner of a publisher's key could otherwise
		// guess keys of admins without limit.
		return valid && (!forAdmins || key.Kind == keyring.Admin)
	}, wrong)
	if key != nil {
		err = admitted(s, key, valid, err)
	}
	return key, err
}

// admitted returns an error if the route does not admit the key, or if the key has expired. In all
// other cases it returns err, the result of the check of the key.
func admitted(s access, key *keyring.Key, valid bool, err error) error {
	if !valid {
		return unauthorized(fmt.Sprintf("the key %s has expired", key.Name))
	}
	if denied := key.CheckKind(s.act, s.kinds...); denied != nil {
		return keyProblem(denied)
	}
	return err
}

// keyProblem converts an error of the keyring into an answer.
func keyProblem(err error) error {
	if denied, ok := errors.AsType[*keyring.DeniedError](err); ok {
		return &problem{Status: http.StatusForbidden, Detail: denied.Error()}
	}
	if over, ok := errors.AsType[*keyring.LimitError](err); ok {
		return &problem{
			Status: http.StatusTooManyRequests, Detail: over.Error() + "; nothing was stored, publish it again after Retry-After",
			retryAfter: strconv.Itoa(int(math.Ceil(over.RetryAfter.Seconds()))),
		}
	}
	return err
}

func bearer(r *http.Request) (string, error) {
	scheme, secret, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if secret = strings.TrimSpace(secret); !ok || !strings.EqualFold(scheme, "Bearer") || secret == "" {
		return "", unauthorized("give a key or token in the header Authorization: Bearer …")
	}
	return secret, nil
}

// looksLikeToken reports whether a secret has the form of a JWT. The secret of a key may have this
// form too.
func looksLikeToken(secret string) bool { return strings.Count(secret, ".") == 2 }

func unauthorized(detail string) error {
	return &problem{Status: http.StatusUnauthorized, Detail: detail}
}

// grant is the key or the token with which a request was admitted. key is nil for a token.
type grant struct {
	key  *keyring.Key
	user auth.Identity
}

// operator returns the operator who acts with a key.
func (g grant) operator() operations.Operator {
	return operations.Operator{Name: g.key.Name, Via: operations.ViaAPI}
}

// vouch counts the connection of a request against the limits of the key or user. It fails if
// requests are in progress on too many connections: of this key or user, of the client's address,
// or of all keys or all users together.
func (a *API) vouch(w http.ResponseWriter, r *http.Request, g grant) error {
	holder := inbound.Holder{User: true, Name: g.user.UserID}
	if g.key != nil {
		holder = inbound.Holder{Name: g.key.Name}
	}
	if inbound.Vouch(r.Context(), holder) {
		return nil
	}
	w.Header().Set("Connection", "close")
	return &problem{Status: http.StatusTooManyRequests, Detail: "requests are under way on too many connections of this key, user or address; repeat the request after Retry-After, on fewer connections", retryAfter: "1"}
}

type grantKey struct{}

// withGrant returns the request with its grant in the context. If the grant is a token, an append
// with this context fails in the database if the token was revoked or has expired.
func withGrant(r *http.Request, g grant) *http.Request {
	ctx := context.WithValue(r.Context(), grantKey{}, g)
	if g.key == nil {
		ctx = eventlog.WithRights(ctx, eventlog.Right{UserID: g.user.UserID, IssuedAt: g.user.IssuedAt, ExpiresAt: g.user.ExpiresAt})
	}
	return r.WithContext(ctx)
}

// stillAuthorized returns an error if the request's key or token is no longer valid. Call it after
// the request has waited for its body, for folding, or for a slot of a limit.
func (a *API) stillAuthorized(ctx context.Context) error {
	g, ok := ctx.Value(grantKey{}).(grant)
	if !ok {
		return nil
	}
	if g.key == nil {
		if err := a.cfg.Tokens.Check(g.user); err != nil {
			return unauthorized(err.Error())
		}
		return nil
	}
	err := a.cfg.Keys.Still(g.key)
	switch {
	case errors.Is(err, keyring.ErrChanging):
		return &problem{Status: http.StatusServiceUnavailable, Detail: "the keys changed while the request was under way, and it was not carried out; repeat it", retryAfter: "1"}
	case err != nil:
		return unauthorized(err.Error())
	}
	return nil
}
