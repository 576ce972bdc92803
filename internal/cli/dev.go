//go:build unix

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/obs"
	"github.com/badged/badged/internal/pg/embedpg"
	"github.com/badged/badged/internal/server/app"
	"github.com/badged/badged/internal/server/config"
	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/pubsub"
)

type devCmd struct {
	config.Log `embed:""`
	Listen     string `help:"Address of the listener; port 0 selects a free port." default:"127.0.0.1:8080"`
	Seed       string `help:"File with CloudEvents, one on each line, that the server publishes at its start." placeholder:"FILE" env:"-"`
}

// The keys that every `badged dev` accepts. They are not secret.
const (
	devPublisherKey = "dev-publisher-key"
	devAdminKey     = "dev-admin-key-for-tests-only"
	devJWTSecret    = "dev-secret-of-user-tokens-32-bytes"
)

// Run serves until it is interrupted, and then deletes all data.
func (c *devCmd) Run(ctx context.Context, streams Streams) (err error) {
	log, err := obs.NewLogger(streams.Err, c.LogLevel, c.LogFormat)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go endWithGoRun(ctx, cancel)
	seed, err := c.seed()
	if err != nil {
		return fmt.Errorf("--seed: %w", err)
	}
	l, err := app.Listen(ctx, c.Listen)
	if err != nil {
		return err
	}
	defer l.Close()
	// Turn durability off: all data is deleted at the end.
	pg, err := embedpg.Start(ctx, embedpg.Config{Log: log, Settings: map[string]string{"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}})
	if err != nil {
		return fmt.Errorf("the private Postgres does not start: %w", err)
	}
	defer stopPrivate(ctx, pg, &err)
	bus := pubsub.NewMemory()
	a, err := app.Open(ctx, config.Server{
		Database:       config.Database{DatabaseURL: pg.URL()},
		Tokens:         config.Tokens{JWTKeys: []string{"dev=HS256:" + devJWTSecret}},
		Roles:          []config.Role{config.RoleAPI, config.RoleProjector, config.RoleGateway, config.RoleNotifier},
		PublisherKeys:  []string{"dev=" + devPublisherKey},
		AdminKeys:      []string{"dev=" + devAdminKey},
		AllowedOrigins: []string{"*"},
		Webhooks:       config.Webhooks{WebhooksAllowPrivate: true, WebhooksOrigin: "badged"},
		Migrate:        true,
	}, l, log, app.WithBus(bus))
	if err != nil {
		return err
	}
	defer a.Close()
	for batch := range slices.Chunk(seed, seedBatch) {
		if _, err := a.Log().Append(ctx, batch...); err != nil {
			return fmt.Errorf("--seed: %s: %w", c.Seed, err)
		}
	}
	a.Handle("GET /dev/folded", awaitFolded(badges.NewReader(a.Pool(), a.Log()), a.Log()))
	a.Stage("postgres", watchPrivate(pg))
	return a.Run(ctx, func() {
		fmt.Fprintf(streams.Err, devBanner, "http://"+l.Addr().String(), devPublisherKey, devAdminKey, devJWTSecret, pg.URL())
	})
}

// devBanner says how to use the server.
const devBanner = `badged: ready on %[1]s

export BADGED_URL=%[1]s
export BADGED_PUBLISHER_KEY=%[2]s
export BADGED_ADMIN_KEY=%[3]s
export BADGED_JWT_KEYS=dev=HS256:%[4]s
export BADGED_DATABASE_URL='%[5]s'

  Pages of all origins may connect, as with --allowed-origins '*'.
  GET /dev/folded answers once everything that was published is in the badges.
  Ctrl-C stops everything; nothing stays.
`

// seedBatch is the number of events of --seed in one append.
const seedBatch = 1000

// seed reads the events of the file that --seed names. Without --seed it returns none.
func (c *devCmd) seed() (all []events.Event, err error) {
	if c.Seed == "" {
		return nil, nil
	}
	b, err := os.ReadFile(c.Seed)
	if err != nil {
		return nil, err
	}
	line := 0
	for text := range bytes.Lines(b) {
		line++
		if text = bytes.TrimSpace(text); len(text) == 0 {
			continue
		}
		e, err := events.Decode(text)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", c.Seed, line, err)
		}
		all = append(all, e)
	}
	return all, nil
}

// foldedPause is the pause between two checks whether the events are folded.
const foldedPause = 10 * time.Millisecond

// awaitFolded returns a handler that answers as soon as the badges include all events that were
// committed before the request.
func awaitFolded(reader *badges.Reader, log *events.Log) http.Handler {
	everywhere := make([]string, 0, log.Layout().Len()) // one user id in each partition
	for i, seen := 0, map[int]bool{}; len(seen) < log.Layout().Len(); i++ {
		if user := fmt.Sprint(i); !seen[log.PartitionOf(user)] {
			seen[log.PartitionOf(user)] = true
			everywhere = append(everywhere, user)
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		head, err := reader.Head(r.Context(), "")
		for folded := false; err == nil && !folded; {
			if folded, err = reader.Folded(r.Context(), everywhere, head); err == nil && !folded {
				err = wait.For(r.Context(), foldedPause)
			}
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
}

// stopPrivate stops a private Postgres and joins its error to err.
func stopPrivate(ctx context.Context, pg *embedpg.Server, err *error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), databaseStop)
	defer cancel()
	*err = errors.Join(*err, pg.Stop(ctx))
}

// watchPrivate returns a stage that fails when a private Postgres stops.
func watchPrivate(pg *embedpg.Server) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return nil
		case <-pg.Done():
			return errors.Join(errors.New("the private Postgres has ended"), pg.Err())
		}
	}
}
