// Package httpapi implements the HTTP API of badged. Publishers append events with it, apps and
// push senders read badges, and operators administer the server.
//
// It does not know SQL or sessions of Postgres. ADR 29 says why routes are declared in tables. ADR
// 46 says why publishers are refused while folding is behind.
package httpapi

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/describe"
	"github.com/badged/badged/internal/bridge/backpressure"
	"github.com/badged/badged/internal/server/auth"
	"github.com/badged/badged/internal/server/keyring"
	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/pubsub"
)

// Appender stores events durably. Each database stores either all events of its users or none of
// them. If the error wraps a [*cluster.PartialFailure], this failure names the partitions whose
// events were not stored.
type Appender interface {
	Append(ctx context.Context, evs ...events.Event) (events.Receipt, error)
}

// Badges reads the state of users.
type Badges interface {
	Badge(ctx context.Context, userID string) (pubsub.Badge, error)
	// ShownBadges returns badges in the form for clients: see [pubsub.Badge.Shown].
	ShownBadges(ctx context.Context, userIDs []string) ([]pubsub.Badge, error)
	// View returns the state of a user with only the conversations in the given categories.
	View(ctx context.Context, userID string, categories []string) (pubsub.Snapshot, error)
	Conversations(ctx context.Context, userID string, f badges.Filter, limit int, cursor string) ([]pubsub.Conversation, string, error)
	Categories(ctx context.Context, userID string, within []string, parent string, limit int, cursor string) ([]badges.Category, string, error)
	// FoldedAt reports whether the badges of the given users include all their events up to a
	// position, which [events.Receipt.Position] returns. It fails with cluster.ErrBadPosition if
	// the position is malformed, and with badges.ErrLost if the log may have lost the events at the
	// position.
	FoldedAt(ctx context.Context, userIDs []string, position string) (bool, error)
}

// Tokens verifies users' tokens.
type Tokens interface {
	Authenticate(ctx context.Context, token string) (auth.Identity, error)
	// Check returns an error if the token of an identity has expired or was revoked.
	Check(id auth.Identity) error
}

// Config configures the API. Appender, Badges and Tokens are required.
type Config struct {
	Appender Appender
	// Away returns the names of the databases that are unavailable now. Default: none.
	Away   func() []string
	Badges Badges
	// AppBadges serves requests that read with tokens of users. Default: Badges.
	AppBadges Badges
	Tokens    Tokens
	// Partitions returns the number of partitions of the log. An event is stored once in each
	// partition that has users of the event; with the number of partitions, the API limits how many
	// copies one request can cause. If Partitions is nil, copies are not limited.
	Partitions func() int
	// Throttle slows and refuses publishers while folding is behind. If it is nil, all publishers
	// are admitted at once.
	Throttle *backpressure.Throttle
	// Explainer serves /admin/v1/users/{user}/explain. If it is nil, the route does not exist.
	Explainer Explainer
	// Disconnects serves POST /v1/users/{user}/disconnect. If it is nil, the route does not
	// exist.
	Disconnects Disconnects
	// Devices registers devices for pushes. If it is nil, the routes for devices do not exist.
	Devices Devices
	// Operations serves the routes under /admin/v1/ that no other field serves. If it is nil, these
	// routes do not exist.
	Operations Operations
	// Webhooks serves /admin/v1/webhooks. If it is nil, the routes do not exist.
	Webhooks Webhooks
	// Keys are the API keys. If it is nil, no key is valid.
	Keys *keyring.Ring
	// ClientOf returns the address of the client of a request. By default all requests count as
	// coming from one address.
	ClientOf func(r *http.Request) netip.Prefix
	// ReadsPerSecond is the maximum rate at which one user may read badges with tokens, in
	// requests per second; 0 means no limit.
	ReadsPerSecond float64
	// BadToken, if not nil, is called with the address of the client for each invalid token of a
	// user, except for expired tokens. It must not block.
	BadToken func(from netip.Prefix)
	// WrongKey, if not nil, is called for each key that is wrong, or refused without a check. Its
	// arguments are the kind of key that the route requires (publisher or admin) and the address
	// of the client. It must not block.
	WrongKey func(kind string, from netip.Prefix)
	Logger   *slog.Logger
	// Registerer registers the metrics; nil discards them.
	Registerer prometheus.Registerer
}

// API is an http.Handler for the routes under /v1/, /admin/v1/ and /debug/pprof/. It is
// safe for concurrent use.
type API struct {
	cfg Config
	log *slog.Logger
	mux *http.ServeMux
	// publisherTries and adminTries limit how fast clients can guess keys.
	publisherTries, adminTries *attempts
	// reads and deviceRequests limit requests with tokens of users.
	reads, deviceRequests *tokenLimits
	// profiling is locked while a profile over a period is being recorded.
	profiling sync.Mutex
}

// New returns the API.
func New(cfg Config) (*API, error) {
	if cfg.Appender == nil || cfg.Badges == nil || cfg.Tokens == nil {
		return nil, errors.New("httpapi: Appender, Badges and Tokens are required")
	}
	a := newAPI(cfg)
	routes := slices.Concat(a.routes(), a.profileRoutes())
	if cfg.Disconnects != nil {
		routes = append(routes, a.disconnectRoutes()...)
	}
	if cfg.Devices != nil {
		routes = append(routes, a.deviceRoutes()...)
	}
	if cfg.Explainer != nil {
		routes = append(routes, a.adminRoutes()...)
	}
	if cfg.Operations != nil {
		routes = append(routes, a.operationRoutes()...)
	}
	if cfg.Webhooks != nil {
		routes = append(routes, a.webhookRoutes()...)
	}
	a.handle(routes)
	return a, nil
}

// newAPI returns an API without routes.
func newAPI(cfg Config) *API {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.AppBadges == nil {
		cfg.AppBadges = cfg.Badges
	}
	if cfg.ClientOf == nil {
		cfg.ClientOf = func(*http.Request) netip.Prefix { return netip.Prefix{} }
	}
	counts := newWrongKeys(cfg.Registerer)
	a := &API{
		cfg: cfg, log: cfg.Logger, mux: http.NewServeMux(),
		publisherTries: newAttempts("publisher", publisherTries, cfg.Logger, counts),
		adminTries:     newAttempts("admin", adminTries, cfg.Logger, counts),
		reads:          newTokenLimits(cfg.ReadsPerSecond, 0), deviceRequests: newTokenLimits(deviceRequests, devicesAtOnce),
	}
	a.publisherTries.report, a.adminTries.report = cfg.WrongKey, cfg.WrongKey
	return a
}

func (a *API) handle(routes []describe.Route) {
	for _, r := range routes {
		a.mux.Handle(r.Pattern(), withSlashes(r.Handler, r.Params))
	}
	a.mux.HandleFunc("/", a.notFound)
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	given := r.URL
	r.URL = markSlashes(given)
	a.mux.ServeHTTP(w, r)
	r.URL = given
}

// notFound answers requests that no route matches.
func (a *API) notFound(w http.ResponseWriter, r *http.Request) {
	a.failUnrouted(w, r, a.mux, "is not a route of this API")
}

// methods are the methods that routes may have, sorted.
var methods = []string{http.MethodDelete, http.MethodGet, http.MethodPatch, http.MethodPost, http.MethodPut}

// failUnrouted answers a request that no route of mux matches. If the path has routes for other
// methods, the answer is 405, with a list of these methods. Otherwise the answer is 404, and `why`
// says what is wrong with the path.
func (a *API) failUnrouted(w http.ResponseWriter, r *http.Request, mux *http.ServeMux, why string) {
	var allowed []string
	for _, method := range methods {
		probe := *r
		probe.Method = method
		if _, pattern := mux.Handler(&probe); pattern != "/" && pattern != "" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) > 0 {
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		a.fail(w, r, &problem{Status: http.StatusMethodNotAllowed, Detail: r.Method + " is not a method of " + r.URL.Path + "; use " + strings.Join(allowed, " or ")})
		return
	}
	a.fail(w, r, &problem{Status: http.StatusNotFound, Detail: r.URL.Path + " " + why})
}

// Elsewhere returns a handler that passes requests to mux. If mux has no route for a request, the
// handler itself answers with an error. It also refuses paths with an empty segment or a dot, for
// example because an id is empty: http.ServeMux would redirect them to a shorter path.
func Elsewhere(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given := r.URL.EscapedPath()
		if clean := path.Clean(given); given != clean && (clean == "/" || given != clean+"/") {
			new(API).fail(w, r, &problem{Status: http.StatusNotFound, Detail: r.URL.Path + " is not a route: a part of it is empty or a dot"})
			return
		}
		if _, pattern := mux.Handler(r); pattern == "" {
			new(API).failUnrouted(w, r, mux, "is not a route here; routes of the API begin with /v1/")
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// handler handles a request; caller has its key or token. If err is a *problem, the client sees the
// text of err. The text of any other error is not shown to the client.
type handler func(w http.ResponseWriter, r *http.Request, caller grant) (_ answer, err error)

// answer is an answer to send as JSON. The zero value means that the handler has written the
// answer.
type answer struct {
	status int // 0 means 200
	body   any // nil means that there is no body
}
