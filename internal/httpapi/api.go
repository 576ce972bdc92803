// Package httpapi is the HTTP face of badged: publishers append events, and
// publishers, push senders and apps read badges.
package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/auth"
	"github.com/badged/badged/pubsub"
)

// Appender makes events durable: all of them, or none.
type Appender interface {
	Append(ctx context.Context, evs ...events.Event) (events.Receipt, error)
}

// Badges is how the API reads the state of users.
type Badges interface {
	Badge(ctx context.Context, userID string) (pubsub.Badge, error)
	Badges(ctx context.Context, userIDs []string) ([]pubsub.Badge, error)
	Conversations(ctx context.Context, userID string, unreadOnly bool, limit int, cursor string) ([]pubsub.Conversation, string, error)
	// Folded reports whether everything that a transaction appended for all of
	// these users is in their badges.
	Folded(ctx context.Context, userIDs []string, transactionID int64) (bool, error)
}

// Tokens tells whose a user's token is.
type Tokens interface {
	Authenticate(ctx context.Context, token string) (auth.Identity, error)
}

// Config is what the API serves. Appender, Badges and Tokens are required.
type Config struct {
	Appender Appender
	Badges   Badges
	Tokens   Tokens
	// Explainer answers /admin/v1/users/{user}/explain; without one there is no
	// such route.
	Explainer Explainer
	// Operations answers the other routes under /admin/v1/; without it there are
	// none.
	Operations Operations
	// Publishers may publish and read any badge; Admins may do all.
	Publishers, Admins auth.Keys
	Logger             *slog.Logger
}

// API is an http.Handler for the routes under /v1/ and /admin/v1/. It is safe for concurrent
// use.
type API struct {
	cfg Config
	log *slog.Logger
	mux *http.ServeMux
	// methods are those that some route has, in order.
	methods []string
}

// New returns the API.
func New(cfg Config) (*API, error) {
	if cfg.Appender == nil || cfg.Badges == nil || cfg.Tokens == nil {
		return nil, errors.New("httpapi: Appender, Badges and Tokens are required")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	a := &API{cfg: cfg, log: cfg.Logger, mux: http.NewServeMux()}
	routes := a.routes()
	if cfg.Explainer != nil {
		routes = append(routes, a.adminRoutes()...)
	}
	if cfg.Operations != nil {
		routes = append(routes, a.operationRoutes()...)
	}
	for _, r := range routes {
		a.mux.Handle(r.Pattern(), r.Handler)
		a.methods = append(a.methods, r.Method)
	}
	slices.Sort(a.methods)
	a.methods = slices.Compact(a.methods)
	a.mux.HandleFunc("/", a.notFound)
	return a, nil
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux.ServeHTTP(w, r) }

// notFound answers what no route does, with the methods that would have worked
// where only the method is wrong.
func (a *API) notFound(w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, method := range a.methods {
		probe := r.Clone(r.Context())
		probe.Method = method
		if _, pattern := a.mux.Handler(probe); pattern != "/" && pattern != "" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) > 0 {
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		a.fail(w, r, &problem{Status: http.StatusMethodNotAllowed, Detail: r.Method + " is not a method of " + r.URL.Path + "; use " + strings.Join(allowed, " or ")})
		return
	}
	a.fail(w, r, &problem{Status: http.StatusNotFound, Detail: r.URL.Path + " is not a route of this API"})
}

// handler handles a request or says what is wrong; *problem errors are shown,
// all others are not.
type handler func(w http.ResponseWriter, r *http.Request) error

// publisher lets publishers and admins in.
func (a *API) publisher(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		secret, err := bearer(r)
		if err == nil && !a.hasKey(secret) {
			err = unauthorized("the key is not one of a publisher")
		}
		if err == nil {
			err = h(w, r)
		}
		if err != nil {
			a.fail(w, r, err)
		}
	}
}

// reader lets publishers and admins in, and the user whose state it is.
func (a *API) reader(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := a.mayRead(r); err != nil {
			a.fail(w, r, err)
			return
		}
		if err := h(w, r); err != nil {
			a.fail(w, r, err)
		}
	}
}

func (a *API) mayRead(r *http.Request) error {
	user := r.PathValue("user")
	if reason := events.CheckID(user); reason != "" {
		return &problem{Status: http.StatusBadRequest, Detail: "user id " + reason}
	}
	secret, err := bearer(r)
	if err != nil {
		return err
	}
	if a.hasKey(secret) {
		return nil
	}
	if strings.Count(secret, ".") != 2 { // not even the shape of a JWT
		return unauthorized("neither a publisher's key nor a user's token")
	}
	id, err := a.cfg.Tokens.Authenticate(r.Context(), secret)
	if errors.Is(err, auth.ErrKeysAway) {
		return &problem{Status: http.StatusServiceUnavailable, Detail: err.Error(), retryAfter: "5"}
	}
	if err != nil {
		return unauthorized(err.Error())
	}
	if id.UserID != user {
		return &problem{Status: http.StatusForbidden, Detail: "a user's token reads that user only"}
	}
	return nil
}

func (a *API) hasKey(secret string) bool {
	_, publisher := a.cfg.Publishers.Check(secret)
	_, admin := a.cfg.Admins.Check(secret)
	return publisher || admin
}

func bearer(r *http.Request) (string, error) {
	scheme, secret, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if secret = strings.TrimSpace(secret); !ok || !strings.EqualFold(scheme, "Bearer") || secret == "" {
		return "", unauthorized("give a key or token in the header Authorization: Bearer …")
	}
	return secret, nil
}

func unauthorized(detail string) error {
	return &problem{Status: http.StatusUnauthorized, Detail: detail}
}
