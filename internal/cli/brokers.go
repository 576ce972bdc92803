package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/badged/badged/internal/bridge/ingest"
	"github.com/badged/badged/internal/bridge/tail"
	"github.com/badged/badged/internal/obs"
	"github.com/badged/badged/internal/server/app"
	"github.com/badged/badged/internal/server/config"
)

// ingestCmd is `badged ingest`. It runs a server whose only role is ingest.
type ingestCmd struct {
	config.Database    `embed:""`
	config.Brokers     `embed:""`
	config.ProfileKeys `embed:""`
	Listen             string        `help:"Address of the listener for /metrics, /readyz, /livez and /debug/pprof/; port 0 selects a free port." default:"127.0.0.1:8081"`
	RedisURL           string        `name:"redis-url" help:"URL of the Redis that carries updates between servers, to wake projectors at once. Without it, projectors find new events within 0.1 s." placeholder:"URL"`
	BusKey             []string      `help:"Secrets of at least 32 bytes for signatures of messages on that Redis; comma-separated. Set the same secrets in all processes." placeholder:"SECRET"`
	MaxLag             time.Duration `help:"How far folding may fall behind. Above this, the process reads no further messages from brokers until folding has caught up. 0 for no limit." default:"30s"`
	config.Log         `embed:""`
}

// Validate implements kong's validation.
func (c *ingestCmd) Validate() error {
	errs := []error{c.Database.Validate(), config.ValidateBusKey(c.BusKey)}
	if len(c.From) == 0 {
		errs = append(errs, errors.New("--from (BADGED_FROM) is required, such as redis://localhost:6379/0?stream=chat"))
	}
	if c.MaxLag < 0 {
		errs = append(errs, errors.New("--max-lag must be 0s (no limit) or more"))
	}
	_, bad := ingest.Parse(c.From)
	return errors.Join(append(errs, bad...)...)
}

// Run reads events from brokers until it is interrupted.
func (c *ingestCmd) Run(ctx context.Context, streams Streams) error {
	collectRarely()
	return runSidecar(ctx, streams, c.Log, c.Listen, func(l net.Listener, log *slog.Logger) (*app.App, error) {
		return app.Open(ctx, config.Server{
			Database: c.Database, Brokers: c.Brokers, Roles: []config.Role{config.RoleIngest},
			Listen: c.Listen, RedisURL: c.RedisURL, BusKey: c.BusKey, MaxLag: c.MaxLag, AdminKeys: c.AdminKeys, DrainTimeout: stopTimeout,
		}, l, log, app.ForOperators())
	})
}

// runSidecar runs the app that open returns, until the command is interrupted. Only operators
// use the listener of the app.
func runSidecar(ctx context.Context, streams Streams, cfg config.Log, listen string, open func(net.Listener, *slog.Logger) (*app.App, error)) error {
	log, err := obs.NewLogger(streams.Err, cfg.LogLevel, cfg.LogFormat)
	if err != nil {
		return err
	}
	l, err := app.Listen(ctx, listen)
	if err != nil {
		return err
	}
	defer l.Close()
	a, err := open(l, log)
	if err != nil {
		return err
	}
	defer a.Close()
	return a.Run(ctx, func() { fmt.Fprintf(streams.Err, "badged: ready on http://%s\n", l.Addr()) })
}

// stopTimeout limits how long the command waits for requests in progress when it stops.
const stopTimeout = 5 * time.Second

type tailCmd struct {
	config.Tail `embed:""`
	Listen      string `help:"Address of the listener for /metrics, /readyz, /livez and /debug/pprof/; port 0 selects a free port." default:"127.0.0.1:8083"`
	config.Log  `embed:""`
}

// Validate implements kong's validation.
func (c *tailCmd) Validate() error {
	_, bad := tail.Parse(c.To)
	return errors.Join(append(bad, c.Tail.Validate())...)
}

// Run publishes to brokers until it is interrupted.
func (c *tailCmd) Run(ctx context.Context, streams Streams) error {
	return runSidecar(ctx, streams, c.Log, c.Listen, func(l net.Listener, log *slog.Logger) (*app.App, error) {
		return app.OpenTail(ctx, c.Tail, l, log)
	})
}
