package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/bridge/backpressure"
	"github.com/badged/badged/internal/bridge/relay"
	"github.com/badged/badged/internal/bridge/tail"
	"github.com/badged/badged/internal/bridge/traffic"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/internal/obs"
	"github.com/badged/badged/internal/pg/pooler"
	"github.com/badged/badged/internal/server/config"
	"github.com/badged/badged/internal/server/httpapi"
	"github.com/badged/badged/internal/server/inbound"
	"github.com/badged/badged/internal/server/keyring"
	"github.com/badged/badged/projector/badges"
)

// besideDrainTimeout limits how long a command such as relay, when it is stopped, waits for the end
// of HTTP requests in progress, such as requests for metrics.
const besideDrainTimeout = 5 * time.Second

// newSidecar returns an app for a command that runs beside servers, such as relay. The app
// serves only the routes for operators.
func newSidecar(cfg config.Server, l net.Listener, log *slog.Logger) *App {
	cfg.DrainTimeout = besideDrainTimeout
	a := &App{
		cfg: cfg, log: log, listener: l, registry: obs.NewRegistry(), mux: http.NewServeMux(),
		limits: inbound.Limits{Connections: internalConnections, Unauthenticated: internalConnections},
	}
	a.operators = a.mux
	a.inbound = inbound.NewMetrics(a.registry)
	return a
}

// serveBeside adds the HTTP stage of a sidecar. Call it last, since the stage must start after
// all other stages.
func (a *App) serveBeside() error {
	keys, errs := keyring.New(keyring.Config{Admins: a.cfg.AdminKeys, Logger: a.log, Registerer: a.registry})
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	a.serveProfiles(obs.NewHTTPMetrics(a.registry).Instrument(httpapi.NewProfiles(httpapi.Config{
		Keys: keys, Logger: a.log, Registerer: a.registry, ClientOf: clientOf(nil),
	})))
	a.stage("http", a.serve)
	a.health = obs.NewHealth(a.checks...)
	openAPI, asyncAPI, err := descriptions()
	if err != nil {
		return err
	}
	a.handleOperators(operatorRoutes(a.health, obs.MetricsHandler(a.registry), description(openAPI), description(asyncAPI)))
	return nil
}

// OpenRelay connects to an outbox and assembles the relay, which publishes the events of the
// outbox to badged. Call Close afterwards, even after Run has returned; Close does not close l.
func OpenRelay(ctx context.Context, cfg config.Relay, maxLag time.Duration, l net.Listener, log *slog.Logger) (_ *App, err error) {
	a := newSidecar(config.Server{Database: cfg.Database(), MaxLag: maxLag, AdminKeys: cfg.AdminKeys}, l, log)
	defer func() {
		if err != nil {
			a.Close()
		}
	}()
	pool, err := cfg.OutboxPoolConfig()
	if err != nil {
		return nil, err
	}
	to := relay.Config{Logger: log, Metrics: relay.NewMetrics(a.registry)}
	if to.Outbox, to.Check, err = a.relayOutbox(ctx, pool); err != nil {
		return nil, err
	}
	var registry prometheus.Registerer = a.registry
	if a.cfg.Sharded() { // with several databases, the metrics of all pools need the label "shard"
		registry = prometheus.WrapRegistererWith(prometheus.Labels{"shard": ""}, registry)
	}
	obs.RegisterPool(registry, "outbox", to.Outbox.Pool())
	switch {
	case a.cfg.Sharded():
		to.Divided, err = a.relayShards(ctx)
	case cfg.URL != "":
		to.Divided, err = a.relayServer(ctx, cfg)
	default:
		to.Target, err = a.relayDatabase(ctx)
	}
	if err != nil {
		return nil, err
	}
	r, err := relay.New(to)
	if err != nil {
		return nil, err
	}
	a.checks = append(a.checks, obs.Check{Name: "relay", Vital: true, Run: func(context.Context) error {
		err := r.Health()
		if _, partial := errors.AsType[*relay.WaitingError](err); partial {
			return obs.Impaired(err.Error())
		}
		return err
	}})
	a.stage("relay", r.Run)
	return a, a.serveBeside()
}

// relayOutbox opens the outbox in a database and checks that its events can be relayed. If the
// database is unavailable, err is nil and `check` is set: the caller must call `check` when the
// database is available. Otherwise `check` is nil.
func (a *App) relayOutbox(ctx context.Context, cfg *pgxpool.Config) (outbox *relay.Outbox, check func(context.Context) error, err error) {
	if outbox, err = relay.NewOutbox(ctx, cfg); err != nil {
		return nil, nil, fmt.Errorf("outbox: %w", err)
	}
	a.closers = append(a.closers, outbox.Close)
	a.checks = append(a.checks, obs.Check{Name: "outbox", Vital: true, Run: func(ctx context.Context) error {
		if err := outbox.Pool().Ping(ctx); err != nil {
			return errors.New("the database of the outbox " + faultOfRead(err).String())
		}
		return nil
	}})
	check = func(ctx context.Context) error {
		if _, err := pooler.Find(ctx, outbox.Pool().Config().ConnConfig); err != nil {
			return fmt.Errorf("outbox: %w", err)
		}
		if err := outbox.Check(ctx); err != nil {
			return fmt.Errorf("outbox: %w", err)
		}
		return nil
	}
	switch err := check(ctx); {
	case err == nil:
		return outbox, nil, nil
	case relay.Away(err):
		a.log.WarnContext(ctx, "the database of the outbox cannot be reached; its events will be published once it can be", "error", err)
		return outbox, check, nil
	default:
		return nil, nil, err
	}
}

// relayServer returns the server to publish to. It fails if the server refuses the key. If the
// server is unavailable, relayServer still succeeds: events stay in the outbox until the server
// is available.
func (a *App) relayServer(ctx context.Context, cfg config.Relay) (relay.Divided, error) {
	t, err := traffic.NewHTTPTarget(cfg.URL, cfg.PublisherKey)
	if err != nil {
		return nil, err
	}
	a.closers = append(a.closers, t.Close)
	var transient *traffic.TransientError
	if err := t.Check(ctx); errors.As(err, &transient) {
		a.log.WarnContext(ctx, "the server cannot be reached; events wait in the outbox", "error", err)
	} else if err != nil {
		return nil, err
	}
	return traffic.NewDividedTarget(t), nil
}

// relayDatabase returns the single database to append to.
func (a *App) relayDatabase(ctx context.Context) (relay.Target, error) {
	d, err := a.besideDatabase(ctx, "relay")
	if err != nil {
		return nil, err
	}
	pool := d.serving
	log, err := events.Open(ctx, pool)
	if err != nil {
		return nil, err
	}
	throttle, err := backpressure.New(backpressure.Config{
		Database: pool, Layouts: log,
		MaxLag: a.cfg.MaxLag, Logger: a.log, Registerer: a.registry,
	})
	if err != nil {
		return nil, err
	}
	a.stage("backpressure", throttle.Run)
	return throttledTarget{throttle, traffic.NewDatabaseTarget(log, badges.NewReader(pool, log))}, nil
}

// relayShards returns the shards to append to, if there are several databases.
func (a *App) relayShards(ctx context.Context) (_ relay.Divided, err error) {
	if a.databases, err = a.nameDatabases(); err != nil {
		return nil, err
	}
	if err := a.openDatabases(ctx, "relay"); err != nil {
		return nil, err
	}
	a.watchDatabases()
	throttle, err := backpressure.New(backpressure.Config{
		Waiting: a.waiting, Layouts: a.cluster,
		MaxLag: a.cfg.MaxLag, Logger: a.log, Registerer: a.registry,
	})
	if err != nil {
		return nil, err
	}
	a.stage("backpressure", throttle.Run)
	return relayedShards{cluster.NewAppender(a.cluster, func(s *cluster.Database) events.Append {
		return func(ctx context.Context, evs ...events.Event) (r events.Receipt, err error) {
			err = admitted(ctx, throttle, evs, func() error {
				r, err = s.Log.AppendOwn(ctx, evs...)
				return err
			})
			return r, err
		}
	}), a.cluster}, nil
}

// relayedShards implements relay.Divided.
type relayedShards struct {
	*cluster.Appender
	cluster *cluster.Cluster
}

// PartitionOf implements relay.Divided.
func (r relayedShards) PartitionOf(userID string) int { return r.cluster.Route(userID) }

// Away implements relay.Divided.
func (r relayedShards) Away(partition int) bool {
	for _, p := range r.cluster.Layout().Living() {
		if eventlog.Ancestor(p, r.cluster.Partitions()) != partition {
			continue
		}
		if s := r.cluster.DatabaseOf(p); s == nil || s.Err() != nil {
			return true
		}
	}
	return false
}

// OpenTail connects to the databases and the brokers, and assembles the tail, which publishes
// badges to the brokers. Call Close afterwards, even after Run has returned; Close does not
// close l.
func OpenTail(ctx context.Context, cfg config.Tail, l net.Listener, log *slog.Logger) (_ *App, err error) {
	a := newSidecar(config.Server{Database: cfg.Database, AdminKeys: cfg.AdminKeys}, l, log)
	defer func() {
		if err != nil {
			a.Close()
		}
	}()
	targets, errs := tail.Parse(cfg.To)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if a.databases, err = a.nameDatabases(); err != nil {
		return nil, err
	}
	// The pool does not need connections for the locks of the tail: for each partition and target,
	// the tail opens a separate session that has the lock.
	if err := a.openDatabases(ctx, "tail"); err != nil {
		return nil, err
	}
	a.watchDatabases()
	for i, d := range a.databases {
		t, err := tail.New(tail.Config{
			Pool: d.serving, Log: d.Log, Targets: targets, Held: d.Held, Changed: a.cluster.Changed,
			Logger: d.log, Metrics: tail.NewMetrics(d.registry),
		})
		if err != nil {
			return nil, err
		}
		a.closers = append(a.closers, t.Close)
		if i == 0 { // the brokers are the same for every database
			if err := t.Check(ctx); err != nil {
				return nil, err
			}
		}
		a.checks = append(a.checks, d.checkTail(t))
		a.stageOf(d, "tail", t.Run)
	}
	return a, a.serveBeside()
}

// checkTail returns the readiness check of the tail of a database. The check succeeds while the
// database is unavailable, because the readiness check of databases reports that already.
func (d *database) checkTail(t *tail.Tail) obs.Check {
	name := "tail"
	if d.config.Name != "" {
		name += " of shard " + d.config.Name
	}
	return obs.Check{Name: name, Vital: true, Run: func(context.Context) error {
		if d.Err() != nil {
			return nil
		}
		return t.Health()
	}}
}

// besideDatabase connects to the only database. It fails if there are several databases, or if
// migrations are pending.
func (a *App) besideDatabase(ctx context.Context, purpose string) (*database, error) {
	if _, err := a.cfg.PoolConfig(); err != nil { // fails if there are several databases
		return nil, err
	}
	databases, err := a.nameDatabases()
	if err != nil {
		return nil, err
	}
	d := databases[0]
	if err := a.checkPooler(ctx, d); err != nil {
		return nil, err
	}
	if d.serving, err = a.pool(ctx, d, purpose, a.cfg.PoolSize(d.config, config.ServingConns)); err != nil {
		return nil, err
	}
	return d, a.checkSchema(ctx, d, false)
}

// throttledTarget is a DatabaseTarget whose appends are delayed while folding is behind.
type throttledTarget struct {
	throttle *backpressure.Throttle
	*traffic.DatabaseTarget
}

// Append implements relay.Target.
func (t throttledTarget) Append(ctx context.Context, evs []events.Event) (id int64, err error) {
	err = admitted(ctx, t.throttle, evs, func() error {
		id, err = t.DatabaseTarget.Append(ctx, evs)
		return err
	})
	return id, err
}

// admitted waits until the throttle admits evs, then calls `appended`. The throttle delays events
// while folding is behind. If folding is further behind than --max-lag, admitted fails with
// a [*traffic.TransientError].
func admitted(ctx context.Context, throttle *backpressure.Throttle, evs []events.Event, appended func() error) error {
	ticket, err := throttle.Enter(ctx, 0)
	if err != nil {
		return err
	}
	defer ticket.Leave()
	err = ticket.Admit(ctx, evs)
	if behind, ok := errors.AsType[*backpressure.BehindError](err); ok {
		return &traffic.TransientError{Err: err, After: behind.RetryAfter}
	}
	if err != nil {
		return err
	}
	return appended()
}
