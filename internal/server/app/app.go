// Package app assembles the server. It is the only package that imports all
// parts.
//
// It does not know the command line.
package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/events"
	"github.com/badged/badged/gateway"
	"github.com/badged/badged/internal/base/metric"
	"github.com/badged/badged/internal/bridge/backpressure"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/obs"
	"github.com/badged/badged/internal/operations"
	"github.com/badged/badged/internal/pg/pgfault"
	"github.com/badged/badged/internal/server/auth"
	"github.com/badged/badged/internal/server/config"
	"github.com/badged/badged/internal/server/httpapi"
	"github.com/badged/badged/internal/server/inbound"
	"github.com/badged/badged/internal/server/keyring"
	"github.com/badged/badged/projector"
	"github.com/badged/badged/pubsub"
)

const (
	// readersShare divides the connections of the serving pool: HTTP reads with keys may use
	// 1/readersShare of them, and HTTP reads with tokens another 1/readersShare. If the pool has
	// the default size, 16, then these reads, queries for devices and the gateway leave at least
	// one connection to publishers.
	readersShare = 5
	// readersPatience is how long an HTTP read with a key may wait for a connection. appsPatience
	// is the same for reads with tokens; it is shorter, since apps repeat their requests.
	readersPatience = 30 * time.Second
	appsPatience    = 2 * time.Second
)

// App is a server process with some or all roles.
type App struct {
	cfg      config.Server
	log      *slog.Logger
	registry *prometheus.Registry
	health   *obs.Health
	mux      *http.ServeMux

	pools []*pgxpool.Pool
	// cluster has the databases. databases has, in the same order, the parts that this process runs
	// for each database.
	cluster   *cluster.Cluster
	identity  cluster.Guard
	databases []*database
	// share limits how many partitions are folded concurrently by the projectors of all databases
	// together.
	share     *projector.Share
	timelines pgfault.Timelines
	bus       pubsub.Bus
	publisher *publisher
	tokens    *auth.Tokens
	keys      *keyring.Ring
	// declared is the file that declares webhooks; nil without such a file.
	declared *operations.WebhookFile
	// tracing and traces are nil without tracing.
	tracing *obs.Tracing
	traces  *traces
	// checks are the checks of readiness.
	checks []obs.Check
	// stages are the parts that Run starts, in the order of their start.
	stages   []stage
	listener net.Listener
	// operators has the routes for operators. internal is a separate listener for them; if it is
	// nil, operators is the same as mux.
	operators *http.ServeMux
	internal  net.Listener
	// profiled is true if the routes in operators include runtime profiles of the process. It is
	// true only if clients cannot reach the listener of these routes.
	profiled bool
	// limits limits the connections of clients.
	limits inbound.Limits
	// guard wraps the handler of every route; nil means no wrapper.
	guard   func(http.Handler) http.Handler
	inbound *inbound.Metrics
	// bodies limits the memory for the bodies of requests.
	bodies *inbound.Bodies
	// ended closes the connections of users. connected returns the users that have connections.
	ended     func(userIDs []string)
	connected func() []string
	// closers are called by Close.
	closers []func()
	// opening is closed when the gateway accepts connections; nil without the role gateway.
	opening <-chan struct{}
}

// Option changes the server that Open assembles.
type Option func(*App)

// WithBus sets the bus of a server without Redis. App.Close closes the bus.
func WithBus(b pubsub.Bus) Option { return func(a *App) { a.bus = b } }

// WithInternal serves the routes for operators on a separate listener.
func WithInternal(l net.Listener) Option {
	return func(a *App) { a.internal, a.operators, a.profiled = l, http.NewServeMux(), true }
}

// ForOperators declares that only operators can reach the listener, so that the server may also
// serve runtime profiles of the process on it. The server must have neither the role api nor the
// role gateway.
func ForOperators() Option { return func(a *App) { a.profiled = true } }

// WithGuard wraps every route in a handler.
func WithGuard(guard func(http.Handler) http.Handler) Option { return func(a *App) { a.guard = guard } }

// Open connects to the databases and assembles the server, which Run then serves on l. Call
// Close afterwards, even after Run has returned; Close does not close l.
func Open(ctx context.Context, cfg config.Server, l net.Listener, log *slog.Logger, options ...Option) (_ *App, err error) {
	a := &App{cfg: cfg, log: log, listener: l, registry: obs.NewRegistry(), mux: http.NewServeMux(), ended: func([]string) {}, connected: func() []string { return nil }}
	a.operators = a.mux
	for _, change := range options {
		change(a)
	}
	defer func() {
		if err != nil {
			a.Close()
		}
	}()
	// Parse the settings first: their mistakes are reported without connecting.
	given, errs := parse(cfg, a.now, log, a.registry)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if err := a.limitConnections(ctx); err != nil {
		return nil, err
	}
	a.inbound = inbound.NewMetrics(a.registry)
	a.bodies = inbound.NewBodies(a.bodyMemory(), a.inbound)
	if given.certificate != nil {
		a.listener = tls.NewListener(a.listener, given.certificate.TLS())
		a.stage("certificate", func(ctx context.Context) error { return given.certificate.Run(ctx, log, a.inbound) })
	}
	keySet, err := a.openKeySet()
	if err != nil {
		return nil, err
	}
	if a.databases, err = a.nameDatabases(); err != nil {
		return nil, err
	}
	if a.tokens, err = auth.NewTokens(auth.TokenConfig{
		Keys: cfg.JWTKeys, Set: keySet, Audience: cfg.JWTAudience, Issuer: cfg.JWTIssuer, MaxLifetime: cfg.JWTMaxLifetime,
		Revoked: a.revoked, Unread: a.unread, Now: a.now, Registerer: a.registry, Logger: log,
	}); err != nil {
		return nil, fmt.Errorf("--jwt-keys: %w", err)
	}

	if err := a.openTracing(ctx); err != nil {
		return nil, err
	}

	if err := a.openDatabases(ctx, "serving"); err != nil {
		return nil, err
	}
	metric.GaugeFunc(a.registry, "badged_log_partitions", "Partitions of the log.", func() float64 { return float64(a.cluster.Layout().Len()) })
	if err := a.openBus(); err != nil {
		return nil, err
	}
	a.openRevocations(ctx)
	a.publisher = newPublisher(a.bus, a.registry, log)
	a.publisher.remote, a.publisher.traces = cfg.RedisURL != "", a.traces
	appender := cluster.NewAppender(a.cluster, a.appendTo)
	a.publisher.appendAll = appender.Append
	if a.cluster.Several() {
		a.stage("hints", appender.ReplayHints)
	}
	a.stage("publisher", a.publisher.run)
	a.watchDatabases()
	if a.acceptsTokens() {
		a.checks = append(a.checks, obs.Check{Name: "revocations", Vital: true, Run: a.checkRevocations})
	}
	a.checks = append(a.checks, obs.Check{Name: "folding", Run: a.checkFolding}) // not vital: badges can be read while folding is stopped
	if keySet != nil {
		// Not vital: tokens signed with cached keys can still be verified.
		a.checks = append(a.checks, obs.Check{Name: "jwks", Run: keySet.Check})
	}
	a.keys = given.keys
	a.keys.Share(keyring.SharedQuotas{Pool: a.byName()[0].serving})
	a.stage("keys", a.keys.Run)
	reader := cluster.NewReader(a.cluster)
	for _, d := range a.databases {
		if err := a.openSampler(d); err != nil {
			return nil, err
		}
	}
	ops, err := a.openOperations(given.keys)
	if err != nil {
		return nil, err
	}

	if cfg.Has(config.RoleProjector) {
		for _, d := range a.databases {
			if err := a.openProjector(ctx, d); err != nil {
				return nil, err
			}
		}
	}
	if cfg.Has(config.RoleNotifier) {
		a.openDeclared(given)
		for _, d := range a.databases {
			if err := a.openNotifier(ctx, d, given); err != nil {
				return nil, err
			}
		}
	}
	var throttle *backpressure.Throttle
	if cfg.Has(config.RoleAPI) || cfg.Has(config.RoleIngest) && len(given.brokers) > 0 {
		throttle, err = backpressure.New(backpressure.Config{
			Waiting: a.waiting, Layouts: a.cluster,
			MaxLag: cfg.MaxLag, Logger: log, Registerer: a.registry,
		})
		if err != nil {
			return nil, err
		}
		a.stage("backpressure", throttle.Run)
	}
	if err := a.openIngest(ctx, given.brokers, throttle); err != nil {
		return nil, err
	}
	requests := obs.NewHTTPMetrics(a.registry)
	records := operations.TrailOf(a.cluster)
	signIns := operations.NewSignIns(records, log)
	if cfg.Has(config.RoleAPI) || cfg.Has(config.RoleGateway) || a.profiled {
		a.stage("sign-ins", signIns.Run)
	}
	if cfg.Has(config.RoleAPI) {
		loads := operations.NewKeyLoads(records, log)
		loads.Loaded(operations.KeyLoad{Started: true, Keys: a.keys.Follow(func(l keyring.Load) {
			loads.Loaded(operations.KeyLoad{Keys: l.Keys, Added: l.Added, Changed: l.Changed, Removed: l.Removed})
		})})
		a.stage("changes of keys", loads.Run)
	}
	a.stage("http", a.serve)
	served := httpapi.Config{
		Keys: given.keys, Logger: log, Registerer: a.registry, WrongKey: signIns.Failed, BadToken: signIns.BadToken,
		ClientOf: clientOf(cfg.TrustedProxies),
	}
	if cfg.Has(config.RoleAPI) {
		var webhooks httpapi.Webhooks
		if ops != nil {
			webhooks = a.webhookOperations(given.box)
		}
		served.Partitions = func() int { return a.cluster.Layout().Len() }
		served.Appender, served.Away, served.Throttle = a.publisher, a.cluster.AwayNames, throttle
		served.Badges, served.AppBadges = reader.Limited(readersShare, readersPatience), reader.Limited(readersShare, appsPatience)
		served.Tokens, served.ReadsPerSecond = a.tokens, cfg.ReadsPerSecond
		served.Explainer, served.Operations, served.Webhooks = a.explainer(), ops, webhooks
		served.Disconnects = disconnects{a.databaseOf, a.bus, a.cluster.Route, log}
		served.Devices = devices{a.targetsOf, given.apps, given.box}
		api, err := httpapi.New(served)
		if err != nil {
			return nil, err
		}
		a.mux.Handle("/v1/", requests.Instrument(api))
		a.operators.Handle("/admin/v1/", requests.Instrument(api))
		if a.profiled {
			a.serveProfiles(requests.Instrument(api))
		}
	} else if a.profiled {
		a.serveProfiles(requests.Instrument(httpapi.NewProfiles(served)))
	}
	if cfg.Has(config.RoleGateway) {
		var trace func(traceParent string, came, written time.Time)
		if a.traces != nil {
			trace = a.traces.deliver
		}
		g, err := gateway.New(gateway.Config{
			Trace:   trace,
			Devices: connected{a.targetsOf, uuid.NewString()}, Revocations: revocations(a.databases),
			BadToken: signIns.BadToken,
			Badges:   reader, Commands: commands{a.publisher}, Authenticator: authenticator{a.tokens},
			Bus: a.bus, PartitionOf: a.cluster.Route, RoomsOf: a.cluster.PartitionOf, RoomsMoved: a.databases[0].Log.Changed, AllowOrigin: given.allowOrigin,
			Logger: log, Metrics: gateway.NewMetrics(a.registry),
			Limits: gateway.Limits{
				Connections: a.cfg.MaxConnections, UserConnections: cfg.MaxUserConnections,
				Connects: cfg.ConnectsPerSecond, Commands: cfg.CommandsPerSecond,
				TrustedProxies: cfg.TrustedProxies,
			},
			ReconcileInterval: cfg.ReconcileInterval, DrainDuration: cfg.DrainDuration, DrainTimeout: cfg.DrainTimeout,
		})
		if err != nil {
			return nil, err
		}
		a.ended, a.connected = g.Disconnect, g.Users
		routes := gatewayRoutes(g, given.allowOrigin)
		for i, r := range routes {
			if r.Path == "/v1/commands" { // a request to another route lasts as long as its connection, so its duration is not useful
				routes[i].Handler = requests.Instrument(r.Handler)
			}
		}
		a.handle(routes)
		a.stage("gateway", g.Run)
		a.opening = g.Open()
		a.checks = append(a.checks, obs.Check{Name: "gateway", Vital: true, Run: func(context.Context) error {
			select {
			case <-g.Open():
				return nil
			default:
				return errors.New("starting")
			}
		}})
	}
	a.health = obs.NewHealth(a.checks...)
	openAPI, asyncAPI, err := descriptions()
	if err != nil {
		return nil, err
	}
	a.handleOperators(operatorRoutes(a.health, obs.MetricsHandler(a.registry), description(openAPI), description(asyncAPI)))
	return a, nil
}

// Log is the event log of the first database. If you append to the log directly, call Wake
// afterwards: otherwise projectors find the events only when they poll.
func (a *App) Log() *events.Log { return a.databases[0].Log }

// Wake notifies the projectors that partitions have new events.
func (a *App) Wake(partitions []int) { a.publisher.wakeAll(partitions) }

// Pool returns the serving pool of the first database.
func (a *App) Pool() *pgxpool.Pool { return a.databases[0].serving }

// Tokens returns the signer and verifier of users' tokens.
func (a *App) Tokens() *auth.Tokens { return a.tokens }

// Reload reads again the configuration files that may change while the server runs: the file of
// keys and the file of webhooks.
func (a *App) Reload(ctx context.Context) {
	a.keys.Reload(ctx)
	if a.declared != nil {
		a.declared.Reload()
	}
}

// Handle adds a route. It must be called before Run.
func (a *App) Handle(pattern string, h http.Handler) { a.mux.Handle(pattern, h) }

// Stage adds a part of the server. The part starts after all parts that were added before it, and
// stops before them. Call Stage before Run.
func (a *App) Stage(name string, run func(ctx context.Context) error) { a.stage(name, run) }

// Close releases the resources that Open acquired. It is idempotent.
func (a *App) Close() {
	for _, f := range a.closers {
		f()
	}
	a.closers = nil
	if a.bus != nil {
		if err := a.bus.Close(); err != nil {
			a.log.Warn("cannot close the bus", "error", err)
		}
	}
	for _, p := range a.pools {
		p.Close()
	}
	a.pools = nil
	if a.tracing != nil { // last, since the parts above may still record spans
		a.tracing.Close()
		a.tracing = nil
	}
}
