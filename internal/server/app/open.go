package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/internal/obs"
	"github.com/badged/badged/internal/partition/replay"
	"github.com/badged/badged/internal/server/auth"
	"github.com/badged/badged/internal/user/expiry"
	"github.com/badged/badged/projector"
	"github.com/badged/badged/pubsub"
)

// openExpiry adds the sweep that marks conversations without new messages as read. The sweep
// also ends notification levels that were set for a limited time.
func (a *App) openExpiry(d *database, pool *pgxpool.Pool) error {
	after, err := a.cfg.ExpireAfter()
	if err != nil {
		return err
	}
	x, err := expiry.New(expiry.Config{
		Pool: pool, Log: a.publisher, Layouts: a.cluster, Held: d.Held, After: after,
		Logger: d.log, Metrics: expiry.NewMetrics(d.registry),
	})
	if err != nil {
		return err
	}
	a.stageOf(d, "expiry", x.Run)
	return nil
}

// openVerifying adds the sampler. In the background, the sampler compares the rows of some users
// with the log, in the partitions that p folds.
func (a *App) openVerifying(d *database, pool *pgxpool.Pool, p *projector.Projector) error {
	s, err := replay.NewSampler(replay.SamplerConfig{
		Pool: pool, Log: d.Log, Owner: p, Logger: d.log, Metrics: replay.NewSamplerMetrics(d.registry),
		Interval: a.cfg.VerifyInterval, Users: a.cfg.VerifySample, SelfHeal: a.cfg.SelfHeal,
		Found: a.driftTeller(pool),
	})
	if err != nil {
		return err
	}
	// If the interval is 0, Run returns at once, which the server would treat as a failed stage.
	if a.cfg.VerifyInterval > 0 {
		a.stageOf(d, "verifying", s.Run)
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

// openKeySet returns the set of keys of --jwks-url, or nil if there is no such setting.
func (a *App) openKeySet() (*auth.KeySet, error) {
	if a.cfg.JWKSURL == "" {
		return nil, nil //nolint:nilnil // none configured
	}
	set, err := auth.NewKeySet(auth.KeySetConfig{URL: a.cfg.JWKSURL, MaxAge: a.cfg.JWKSMaxAge, Logger: a.log, Registerer: a.registry})
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

// Listen listens on the address of --listen. Call it before Open, so that an address that is
// already in use is reported before anything starts.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	return listenOn(ctx, "--listen", address)
}

// ListenInternal does what Listen does, for the address of --internal-listen.
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
		return nil, addressError(flag, address, err)
	}
	return l, nil
}

// addressError returns the error for an address on which a listener cannot listen.
func addressError(flag, address string, err error) error {
	if _, malformed := errors.AsType[*net.AddrError](err); malformed {
		err = errors.New("want HOST:PORT, such as 127.0.0.1:8080")
	}
	return fmt.Errorf("%s %s: %w", flag, address, err)
}
