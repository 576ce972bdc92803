// Package httpapi implements the HTTP API of badged: publishers append events,
// and publishers, push senders and apps read badges.
//
// It does not know SQL or sessions of Postgres. ADR 29 says why routes are tables, ADR 46 why
// publishers are refused while folding is behind.
package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/auth"
	"github.com/badged/badged/internal/backpressure"
	"github.com/badged/badged/internal/describe"
	"github.com/badged/badged/internal/keyring"
	"github.com/badged/badged/internal/shards"
	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/pubsub"
)

// Appender makes events durable, all or none.
type Appender interface {
	Append(ctx context.Context, evs ...events.Event) (events.Receipt, error)
}

// Badges reads the state of users.
type Badges interface {
	Badge(ctx context.Context, userID string) (pubsub.Badge, error)
	// ShownBadges returns badges as clients get them: see [pubsub.Badge.Shown].
	ShownBadges(ctx context.Context, userIDs []string) ([]pubsub.Badge, error)
	// View returns the state of a user, with only the conversations that some categories
	// cover.
	View(ctx context.Context, userID string, categories []string) (pubsub.Snapshot, error)
	Conversations(ctx context.Context, userID string, f badges.Filter, limit int, cursor string) ([]pubsub.Conversation, string, error)
	Categories(ctx context.Context, userID string, within []string, of string, limit int, cursor string) ([]badges.Category, string, error)
	// FoldedAt reports whether the badges of these users include everything that was
	// appended for them up to a position, as [events.Receipt.Position] names it. It
	// returns an error that wraps shards.ErrBadPosition if it is none, and badges.ErrLost if the log may
	// not have that any more.
	FoldedAt(ctx context.Context, userIDs []string, position string) (bool, error)
}

// Tokens verifies users' tokens.
type Tokens interface {
	Authenticate(ctx context.Context, token string) (auth.Identity, error)
	// Check returns an error once the token of an identity is not valid any more.
	Check(id auth.Identity) error
}

// Config configures the API. Appender, Badges and Tokens are required.
type Config struct {
	Appender Appender
	// Lacking says whose users lack events after an error of Appender, nil if that cannot
	// be told. May be nil.
	Lacking func(error) *shards.PartialFailure
	// Away returns the names of the shards that cannot be reached now. Default: none.
	Away   func() []string
	Badges Badges
	// AppBadges answers requests with tokens. Default: Badges.
	AppBadges Badges
	Tokens    Tokens
	// Partitions returns how many partitions the log has, each of which gets a copy of an
	// event for its users. Nil does not bound copies.
	Partitions func() int
	// Gate slows and refuses publishers while folding is behind. Nil admits all.
	Gate *backpressure.Gate
	// Explainer answers /admin/v1/users/{user}/explain. Nil leaves out the
	// route.
	Explainer Explainer
	// Disconnects answers POST /v1/users/{user}/disconnect. Nil leaves out the route.
	Disconnects Disconnects
	// Devices registers devices for pushes. Nil leaves out the routes.
	Devices Devices
	// Operations answers the other routes under /admin/v1/. Nil leaves them
	// out.
	Operations Operations
	// Webhooks answers /admin/v1/webhooks. Nil leaves out the routes.
	Webhooks Webhooks
	// Keys are the API keys. Nil has none.
	Keys *keyring.Ring
	// ClientOf returns the client address of a request. By default all requests
	// count as one client.
	ClientOf func(r *http.Request) netip.Prefix
	// ReadsPerSecond is how many requests a second a user may make with tokens to read
	// badges; 0 is no limit.
	ReadsPerSecond float64
	// BadToken, if not nil, is called with the address of each token of a user that is
	// not valid, other than one that has expired. It must not block.
	BadToken func(from netip.Prefix)
	// WrongKey, if not nil, is called with each wrong key: the kind that was
	// expected, publisher or admin, and the address. It must not block.
	WrongKey func(kind string, from netip.Prefix)
	Logger   *slog.Logger
	// Registerer takes the metrics; nil discards them.
	Registerer prometheus.Registerer
}

// API is an http.Handler for the routes under /v1/, /admin/v1/ and /debug/pprof/. It is
// safe for concurrent use.
type API struct {
	cfg Config
	log *slog.Logger
	mux *http.ServeMux
	// publisherTries and adminTries slow attempts to guess keys.
	publisherTries, adminTries *attempts
	// reads and deviceRequests limit requests with tokens of users.
	reads, deviceRequests *tokenLimits
	// profiling is held while a profile is taken over a time.
	profiling sync.Mutex
	// methods are the methods that any route has, in order.
	methods []string
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
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
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

// handle adds the routes.
func (a *API) handle(routes []describe.Route) {
	for _, r := range routes {
		a.mux.Handle(r.Pattern(), withSlashes(r.Handler, r.Params))
		a.methods = append(a.methods, r.Method)
	}
	slices.Sort(a.methods)
	a.methods = slices.Compact(a.methods)
	a.mux.HandleFunc("/", a.notFound)
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	given := r.URL
	r.URL = markSlashes(given)
	a.mux.ServeHTTP(w, r)
	r.URL = given
}

// notFound answers requests that no route matches. If only the method is wrong,
// it names the allowed ones.
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

// Elsewhere answers requests to which no route of a mux belongs with a problem.
func Elsewhere(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern == "" {
			get := *r
			get.Method = http.MethodGet
			if _, pattern = mux.Handler(&get); pattern == "" { // not only with another method
				new(API).fail(w, r, &problem{Status: http.StatusNotFound, Detail: r.URL.Path + " is not a route here; routes of the API begin with /v1/"})
				return
			}
		}
		mux.ServeHTTP(w, r)
	})
}

// handler handles a request. Only *problem errors are shown to the client.
type handler func(w http.ResponseWriter, r *http.Request) error
