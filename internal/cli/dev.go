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
	"github.com/badged/badged/internal/app"
	"github.com/badged/badged/internal/config"
	"github.com/badged/badged/internal/embedpg"
	"github.com/badged/badged/internal/obs"
	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/pubsub"
)

// devCmd is `badged dev`.
type devCmd struct {
	config.Log `embed:""`
	Listen     string `help:"Address to listen on; port 0 picks a free one." default:"127.0.0.1:8080"`
	Seed       string `help:"Events to begin with: a file of CloudEvents, one a line." placeholder:"FILE" env:"-"`
}

// The keys of every `badged dev`. Nothing may depend on their secrecy.
const (
	devPublisherKey = "dev-publisher-key"
	devAdminKey     = "dev-admin-key-for-tests-only"
	devJWTSecret    = "dev-secret-of-user-tokens-32-bytes"
)

// Run serves until it is interrupted. Nothing of it stays.
func (c *devCmd) Run(ctx context.Context, streams Streams) (err error) {
	log, err := obs.NewLogger(streams.Err, c.LogLevel, c.LogFormat)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go endWithGoRun(ctx, cancel)
	l, err := app.Listen(ctx, c.Listen)
	if err != nil {
		return err
	}
	defer l.Close()
	// What is not on a disk needs no sync.
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
	if err := c.seed(ctx, a.Log()); err != nil {
		return fmt.Errorf("--seed: %w", err)
	}
	a.Handle("GET /dev/folded", awaitFolded(badges.NewReader(a.Pool(), a.Log()), a.Log()))
	a.Stage("postgres", watchPrivate(pg))
	return a.Run(ctx, func() {
		fmt.Fprintf(streams.Err, devBanner, "http://"+l.Addr().String(), devPublisherKey, devAdminKey, devJWTSecret)
	})
}

// devBanner prints how to use the server.
const devBanner = `badged: ready on %[1]s

export BADGED_URL=%[1]s
export BADGED_PUBLISHER_KEY=%[2]s
export BADGED_ADMIN_KEY=%[3]s
export BADGED_JWT_KEYS=dev=HS256:%[4]s

  GET /dev/folded answers once everything that was published is in the badges.
  Ctrl-C stops everything; nothing stays.
`

// seedBatch is how many events of a seed are appended at once.
const seedBatch = 1000

// seed appends the events of the file, if there is one.
func (c *devCmd) seed(ctx context.Context, log *events.Log) error {
	if c.Seed == "" {
		return nil
	}
	b, err := os.ReadFile(c.Seed)
	if err != nil {
		return err
	}
	var all []events.Event
	line := 0
	for text := range bytes.Lines(b) {
		line++
		if text = bytes.TrimSpace(text); len(text) == 0 {
			continue
		}
		e, err := events.Decode(text)
		if err != nil {
			return fmt.Errorf("%s:%d: %w", c.Seed, line, err)
		}
		all = append(all, e)
	}
	for batch := range slices.Chunk(all, seedBatch) {
		if _, err := log.Append(ctx, batch...); err != nil {
			return fmt.Errorf("%s: %w", c.Seed, err)
		}
	}
	return nil
}

// foldedPause is how often folding is asked about while something waits for it.
const foldedPause = 10 * time.Millisecond

// awaitFolded answers once badges include everything that was committed when the request
// came.
func awaitFolded(reader *badges.Reader, log *events.Log) http.Handler {
	everywhere := make([]string, 0, log.Layout().Len()) // a user of each partition
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
				select {
				case <-r.Context().Done():
					err = r.Context().Err()
				case <-time.After(foldedPause):
				}
			}
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
}

// stopPrivate stops a private Postgres and adds what fails to err.
func stopPrivate(ctx context.Context, pg *embedpg.Server, err *error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), databaseStop)
	defer cancel()
	*err = errors.Join(*err, pg.Stop(ctx))
}

// watchPrivate returns a stage that fails if a private Postgres ends.
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
