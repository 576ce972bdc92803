//go:build unix

package cli

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"time"

	"github.com/badged/badged/internal/demo"
	"github.com/badged/badged/internal/obs"
	"github.com/badged/badged/internal/partition/replay"
	"github.com/badged/badged/internal/pg/embedpg"
	"github.com/badged/badged/internal/server/app"
	"github.com/badged/badged/internal/server/config"
	"github.com/badged/badged/pubsub"
	"github.com/badged/badged/web"
)

type demoCmd struct {
	config.Log `embed:""`
	Listen     string `help:"Address of the page; port 0 selects a free port." default:"127.0.0.1:8080"`
	DataDir    string `help:"Directory for the Postgres and the keys of the demo. Default: badged/demo in /var/lib for root, in the user's data directory for other users." placeholder:"DIR"`
}

// databaseStop limits the time to stop a private Postgres.
const databaseStop = 20 * time.Second

// reconcileInterval is the interval at which the demo reconciles clients. It is short, so that
// clients soon show correct badges again after a user of the demo's page has interrupted the bus.
const reconcileInterval = 5 * time.Second

// Run runs the demo until it is interrupted.
func (c *demoCmd) Run(ctx context.Context, streams Streams) (err error) {
	log, err := obs.NewLogger(streams.Err, c.LogLevel, c.LogFormat)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go endWithGoRun(ctx, cancel)

	dir := c.DataDir
	if dir == "" {
		base, err := embedpg.DefaultDataDir("badged")
		if err != nil {
			return fmt.Errorf("%w; give one with --data-dir", err)
		}
		dir = filepath.Join(base, "demo")
	}
	l, err := app.Listen(ctx, c.Listen)
	if err != nil {
		return err
	}
	defer l.Close()

	fmt.Fprintf(streams.Err, "badged: starting a private Postgres in %s\n", dir)
	pg, err := embedpg.Start(ctx, embedpg.Config{DataDir: dir, Log: log})
	if err != nil {
		return fmt.Errorf("the demo's Postgres does not start: %w", err)
	}
	defer stopPrivate(ctx, pg, &err)
	keys, err := demo.LoadKeys(filepath.Join(dir, "keys.json"))
	if err != nil {
		return err
	}
	pushConfig, err := demo.WritePushConfig(dir)
	if err != nil {
		return err
	}
	return c.serve(ctx, streams, log, l, pg, keys, pushConfig)
}

func (c *demoCmd) serve(ctx context.Context, streams Streams, log *slog.Logger, l net.Listener, pg *embedpg.Server, keys demo.Keys, pushConfig string) error {
	bus := demo.NewBus(pubsub.NewMemory())
	a, err := app.Open(ctx, config.Server{
		Database:          config.Database{DatabaseURL: pg.URL()},
		Tokens:            config.Tokens{JWTKeys: []string{"demo=HS256:" + keys.JWTSecret}},
		Roles:             []config.Role{config.RoleAPI, config.RoleProjector, config.RoleGateway, config.RoleNotifier},
		PublisherKeys:     []string{"demo=" + keys.PublisherKey},
		AdminKeys:         []string{"demo=" + keys.AdminKey},
		Outbound:          config.Outbound{PushConfig: pushConfig},
		ReconcileInterval: reconcileInterval,
		DrainTimeout:      2 * time.Second,
		Migrate:           true,
	}, l, log, app.WithBus(bus), app.WithGuard(demo.Guard(c.Listen, log)))
	if err != nil {
		return err
	}
	defer a.Close()
	d, err := demo.New(ctx, demo.Config{
		Pool: a.Pool(), Log: a.Log(), Tokens: a.Tokens(), Wake: a.Wake, Bus: bus, Page: web.Demo(), Logger: log,
		Explainer:    replay.NewExplainer(a.Pool(), a.Log()),
		PushEndpoint: demo.PushEndpoint(l.Addr()), PhoneSecret: keys.JWTSecret,
	})
	if err != nil {
		return err
	}
	a.Handle("/", d)
	a.Stage("demo", d.Run)
	a.Stage("postgres", watchPrivate(pg))
	return a.Run(ctx, func() {
		url := "http://" + l.Addr().String()
		fmt.Fprintf(streams.Err, demoBanner, url, keys.PublisherKey, keys.JWTSecret, keys.AdminKey)
	})
}

// demoBanner says what the URL of the page is and how to publish to the demo.
const demoBanner = `badged: ready on %[1]s

  Open %[1]s in a browser: a simulated chat with live badges.
  The admin page is %[1]s/admin/; its key is %[4]s.
  To run the commands of the README, paste these lines into another shell:

export BADGED_URL=%[1]s
export BADGED_PUBLISHER_KEY=%[2]s
export BADGED_JWT_KEYS=demo=HS256:%[3]s

  Ctrl-C stops everything; the data stays.
`
