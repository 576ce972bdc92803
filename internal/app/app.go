// Package app assembles the server. It is the only package that imports all
// parts.
package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/events"
	"github.com/badged/badged/gateway"
	"github.com/badged/badged/internal/auth"
	"github.com/badged/badged/internal/backpressure"
	"github.com/badged/badged/internal/config"
	"github.com/badged/badged/internal/httpapi"
	"github.com/badged/badged/internal/inbound"
	"github.com/badged/badged/internal/obs"
	"github.com/badged/badged/internal/pgfault"
	"github.com/badged/badged/internal/pooler"
	"github.com/badged/badged/migrations"
	"github.com/badged/badged/projector"
	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/projector/expiry"
	"github.com/badged/badged/projector/replay"
	"github.com/badged/badged/pubsub"
)

// App is a server with some or all roles.
type App struct {
	cfg      config.Server
	log      *slog.Logger
	registry *prometheus.Registry
	health   *obs.Health
	mux      *http.ServeMux

	pools     []*pgxpool.Pool
	faults    *pgfault.Watch
	eventLog  *events.Log
	bus       pubsub.Bus
	publisher *publisher
	tokens    *auth.Tokens
	// tracing and traces are nil without tracing.
	tracing *obs.Tracing
	traces  *traces
	// checks decide readiness.
	checks []obs.Check
	// stages are in start order.
	stages   []stage
	listener net.Listener
	// operators has the routes for operators. It is mux, or a separate mux if
	// internal, the listener for operators, is not nil.
	operators *http.ServeMux
	internal  net.Listener
	// limits bounds the connections of clients.
	limits inbound.Limits
	// guard wraps every route. Nil means none.
	guard   func(http.Handler) http.Handler
	inbound *inbound.Metrics
	// opening is closed once the gateway accepts connections; nil without one.
	opening <-chan struct{}
}

// Option changes the server that Open assembles.
type Option func(*App)

// WithBus sets the bus of a server without Redis. The server closes it.
func WithBus(b pubsub.Bus) Option { return func(a *App) { a.bus = b } }

// WithInternal serves the routes for operators on a separate listener.
func WithInternal(l net.Listener) Option {
	return func(a *App) { a.internal, a.operators = l, http.NewServeMux() }
}

// WithGuard wraps every route in a handler.
func WithGuard(guard func(http.Handler) http.Handler) Option { return func(a *App) { a.guard = guard } }

// Open connects to the database and assembles the server, which Run serves on
// l. Call Close afterwards, also after Run; it does not close l.
func Open(ctx context.Context, cfg config.Server, l net.Listener, log *slog.Logger, options ...Option) (_ *App, err error) {
	a := &App{cfg: cfg, log: log, listener: l, registry: obs.NewRegistry(), mux: http.NewServeMux()}
	a.faults = pgfault.NewWatch(a.registry)
	a.operators = a.mux
	for _, change := range options {
		change(a)
	}
	defer func() {
		if err != nil {
			a.Close()
		}
	}()
	// Settings first: checking them needs no connection.
	given, errs := parse(cfg)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	a.limitConnections(ctx)
	a.inbound = inbound.NewMetrics(a.registry)
	keySet, err := a.openKeySet()
	if err != nil {
		return nil, err
	}
	if a.tokens, err = auth.NewTokens(auth.TokenConfig{Keys: cfg.JWTKeys, Set: keySet, Audience: cfg.JWTAudience, Issuer: cfg.JWTIssuer, Registerer: a.registry}); err != nil {
		return nil, fmt.Errorf("--jwt-keys: %w", err)
	}

	if err := a.openTracing(ctx); err != nil {
		return nil, err
	}

	if err := a.checkPooler(ctx); err != nil {
		return nil, err
	}
	// A separate pool keeps requests from delaying the fold.
	serving, err := a.pool(ctx, "serving", config.ServingConns)
	if err != nil {
		return nil, err
	}
	if err := a.checkSchema(ctx, serving); err != nil {
		return nil, err
	}
	if a.eventLog, err = events.Open(ctx, serving); err != nil {
		return nil, err
	}
	partitions := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "badged", Subsystem: "log", Name: "partitions", Help: "Partitions of the log.",
	})
	partitions.Set(float64(a.eventLog.Partitions()))
	a.registry.MustRegister(partitions)
	if err := a.openBus(); err != nil {
		return nil, err
	}
	a.publisher = newPublisher(a.eventLog, a.bus, a.registry, log)
	a.publisher.remote, a.publisher.traces = cfg.RedisURL != "", a.traces
	a.stage("publisher", a.publisher.run)
	a.publisher.written = a.faults.Written
	a.checks = append(a.checks, obs.Check{Name: "postgres", Vital: true, Run: func(ctx context.Context) error {
		return checkPostgres(ctx, serving, a.faults)
	}})
	if keySet != nil {
		// Not vital: tokens signed with cached keys still verify.
		a.checks = append(a.checks, obs.Check{Name: "jwks", Run: keySet.Check})
	}
	reader := badges.NewReader(serving, a.eventLog.Partitions())
	if err := a.openSampler(serving); err != nil {
		return nil, err
	}
	operations, err := a.openOperations(serving, given.admins)
	if err != nil {
		return nil, err
	}

	if cfg.Has(config.RoleProjector) {
		folding, err := a.pool(ctx, "folding", config.FoldingConns)
		if err != nil {
			return nil, err
		}
		bus := a.bus
		var trace func(projector.TracedBatch) []string
		if a.traces != nil {
			bus, trace = tracedBus{bus, a.traces}, a.traces.fold
		}
		p, err := projector.New(projector.Config{
			Pool: folding, Log: a.eventLog, Bus: bus, Trace: trace,
			Logger: log, Metrics: projector.NewMetrics(a.registry),
			CacheBytes:  cfg.CacheMiB << 20,
			DedupWindow: cfg.DedupWindow,
		})
		if err != nil {
			return nil, err
		}
		a.publisher.projector = p
		a.stage("projector", p.Run)
		if err := a.openVerifying(folding, p); err != nil {
			return nil, err
		}
		if err := a.openExpiry(folding); err != nil {
			return nil, err
		}
	}
	var gate *backpressure.Gate
	if cfg.Has(config.RoleAPI) {
		gate, err = backpressure.New(backpressure.Config{
			Database: serving, Partitions: a.eventLog.Partitions(), PartitionOf: a.eventLog.PartitionOf,
			MaxLag: cfg.MaxLag, Logger: log, Registerer: a.registry,
		})
		if err != nil {
			return nil, err
		}
		a.stage("backpressure", gate.Run)
	}
	requests := obs.NewHTTPMetrics(a.registry)
	a.stage("http", a.serve)
	if cfg.Has(config.RoleAPI) {
		api, err := httpapi.New(httpapi.Config{
			Appender: a.publisher, Gate: gate, Badges: reader, Tokens: a.tokens,
			Explainer:  replay.NewExplainer(serving, a.eventLog),
			Operations: operations,
			Publishers: given.publishers, Admins: given.admins, Logger: log, Registerer: a.registry,
			ClientOf: func(r *http.Request) netip.Prefix {
				client, _ := gateway.ClientOf(r, cfg.TrustedProxies) // clients without an address share a limit
				return client
			},
		})
		if err != nil {
			return nil, err
		}
		a.mux.Handle("/v1/", requests.Instrument(api))
		a.operators.Handle("/admin/v1/", requests.Instrument(api))
	}
	if cfg.Has(config.RoleGateway) {
		var trace func(traceParent string, came, written time.Time)
		if a.traces != nil {
			trace = a.traces.deliver
		}
		g, err := gateway.New(gateway.Config{
			Trace:  trace,
			Badges: reader, Commands: commands{a.publisher}, Authenticator: authenticator{a.tokens},
			Bus: a.bus, PartitionOf: a.eventLog.PartitionOf, AllowOrigin: given.allowOrigin,
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
		routes := gatewayRoutes(g, given.allowOrigin)
		for i, r := range routes {
			if r.Path == "/v1/commands" { // the others last as long as their connection
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

// Log is the event log. After appending to it directly, call Wake; otherwise
// projectors find the events by polling.
func (a *App) Log() *events.Log { return a.eventLog }

// Wake tells the projectors that partitions have new events.
func (a *App) Wake(partitions []int) { a.publisher.wakeAll(partitions) }

// Pool returns the pool that serves requests.
func (a *App) Pool() *pgxpool.Pool { return a.pools[0] }

// Tokens returns the signer and verifier of users' tokens.
func (a *App) Tokens() *auth.Tokens { return a.tokens }

// Handle adds a route. It must be called before Run.
func (a *App) Handle(pattern string, h http.Handler) { a.mux.Handle(pattern, h) }

// Stage adds a part that starts after all others and stops before them. It
// must be called before Run.
func (a *App) Stage(name string, run func(ctx context.Context) error) { a.stage(name, run) }

// Close releases the resources that Open acquired. It is idempotent.
func (a *App) Close() {
	if a.bus != nil {
		if err := a.bus.Close(); err != nil {
			a.log.Warn("cannot close the bus", "error", err)
		}
	}
	for _, p := range a.pools {
		p.Close()
	}
	a.pools = nil
	if a.tracing != nil { // no spans are made after this
		a.tracing.Close()
		a.tracing = nil
	}
}

// pool opens a pool of at most maxConns connections, unless the database URL
// sets its own limit.
func (a *App) pool(ctx context.Context, purpose string, maxConns int32) (*pgxpool.Pool, error) {
	cfg, err := a.cfg.PoolConfig()
	if err != nil {
		return nil, err
	}
	projector.ConfigurePool(cfg)
	if !strings.Contains(a.cfg.DatabaseURL, "pool_max_conns") {
		cfg.MaxConns = maxConns
	}
	if cfg.ConnConfig.RuntimeParams["application_name"] == "" {
		cfg.ConnConfig.RuntimeParams["application_name"] = "badged " + purpose
	}
	a.faults.Configure(cfg.ConnConfig)
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = 5 * time.Second
	}
	if cfg.ConnConfig.ValidateConnect == nil {
		// A standby lags: clients would be compared with old badges.
		cfg.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
	}
	if a.traces != nil {
		cfg.ConnConfig.Tracer = a.traces
	}
	p, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("--database-url: %w", err)
	}
	a.pools = append(a.pools, p)
	obs.RegisterPool(a.registry, purpose, p)
	return p, nil
}

// checkPooler fails if the database is behind an unsupported pooler.
func (a *App) checkPooler(ctx context.Context) error {
	cfg, err := a.cfg.PoolConfig()
	if err != nil {
		return err
	}
	if _, err := pooler.Find(ctx, cfg.ConnConfig); err != nil {
		return fmt.Errorf("database: %w", err)
	}
	return nil
}

// checkSchema migrates if so configured, and fails if migrations are pending.
func (a *App) checkSchema(ctx context.Context, pool *pgxpool.Pool) error {
	conn := pool.Config().ConnConfig
	if a.cfg.Migrate {
		applied, err := migrations.Up(ctx, migrations.Config{Conn: conn, Retrying: func(err error, wait time.Duration) {
			a.log.WarnContext(ctx, "a migration could not get its locks and was rolled back; trying again", "wait", wait, "error", err)
		}})
		if err != nil {
			return fmt.Errorf("database: %w", err)
		}
		for _, m := range applied {
			a.log.InfoContext(ctx, "migrated", "migration", m.Name)
		}
	}
	all, err := migrations.Status(ctx, conn)
	if err != nil {
		return fmt.Errorf("database: %w", err)
	}
	if n := migrations.Pending(all); n > 0 {
		return fmt.Errorf("database: %d of %d migrations are pending; run `badged migrate up`, or serve with --migrate", n, len(all))
	}
	return nil
}

// openExpiry adds the expiry sweep if any category has a limit.
func (a *App) openExpiry(pool *pgxpool.Pool) error {
	after, err := a.cfg.ExpireAfter()
	if err != nil || len(after) == 0 {
		return err
	}
	x, err := expiry.New(expiry.Config{
		Pool: pool, Log: a.publisher, Partitions: a.eventLog.Partitions(), After: after,
		Logger: a.log, Metrics: expiry.NewMetrics(a.registry),
	})
	if err != nil {
		return err
	}
	a.stage("expiry", x.Run)
	return nil
}

// openVerifying adds the background sample, which verifies p's partitions.
func (a *App) openVerifying(pool *pgxpool.Pool, p *projector.Projector) error {
	s, err := replay.NewSampler(replay.SamplerConfig{
		Pool: pool, Log: a.eventLog, Owner: p, Logger: a.log, Metrics: replay.NewSamplerMetrics(a.registry),
		Interval: a.cfg.VerifyInterval, Users: a.cfg.VerifySample, SelfHeal: a.cfg.SelfHeal,
	})
	if err != nil {
		return err
	}
	// Without an interval Run returns at once, which counts as a failure of a stage.
	if a.cfg.VerifyInterval > 0 {
		a.stage("verifying", s.Run)
	}
	return nil
}

// openTracing starts tracing if an endpoint is configured.
func (a *App) openTracing(ctx context.Context) (err error) {
	if a.cfg.OTLPEndpoint == "" {
		return nil
	}
	a.tracing, err = obs.NewTracing(ctx, obs.TracingConfig{Endpoint: a.cfg.OTLPEndpoint, Sample: a.cfg.TraceSample, Logger: a.log})
	if err != nil {
		return fmt.Errorf("--otlp-endpoint: %w", err)
	}
	a.traces = &traces{a.tracing.Tracer()}
	return nil
}

// openKeySet returns the key set, or nil if none is configured.
func (a *App) openKeySet() (*auth.KeySet, error) {
	if a.cfg.JWKSURL == "" {
		return nil, nil //nolint:nilnil // none configured
	}
	set, err := auth.NewKeySet(auth.KeySetConfig{URL: a.cfg.JWKSURL, Logger: a.log, Registerer: a.registry})
	if err != nil {
		return nil, fmt.Errorf("--jwks-url: %w", err)
	}
	a.stage("key set", set.Run)
	return set, nil
}

func (a *App) openBus() error {
	if a.bus != nil {
		return nil
	}
	if a.cfg.RedisURL == "" {
		a.bus = pubsub.NewMemory()
		return nil
	}
	bus, err := pubsub.NewRedis(pubsub.RedisConfig{URL: a.cfg.RedisURL, Keys: a.cfg.BusKey, Logger: a.log})
	if err != nil {
		return fmt.Errorf("--redis-url: %w", err)
	}
	a.bus = bus
	registerBusMetrics(a.registry, bus)
	a.checks = append(a.checks, obs.Check{Name: "redis", Run: func(ctx context.Context) error {
		if !bus.Connected() || bus.Ping(ctx) != nil {
			return fmt.Errorf("not connected; clients reconcile with Postgres within %s", a.cfg.ReconcileInterval)
		}
		return nil
	}})
	return nil
}

// Listen listens on the address of --listen. Call it before Open, so that an
// address in use is reported before anything starts.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	return listenOn(ctx, "--listen", address)
}

// ListenInternal is Listen for --internal-listen.
func ListenInternal(ctx context.Context, address string) (net.Listener, error) {
	return listenOn(ctx, "--internal-listen", address)
}

func listenOn(ctx context.Context, flag, address string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s %s: another program is listening there; stop it, or give another address (port 0 picks a free one)", flag, address)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", flag, address, err)
	}
	return l, nil
}
