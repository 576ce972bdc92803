package projector_test

import (
	"context"
	"errors"
	"net"
	"net/http"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/badged/badged/events"
	"github.com/badged/badged/gateway"
	"github.com/badged/badged/migrations"
	"github.com/badged/badged/projector"
	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/pubsub"
)

// Serve badges from your own Go server: the projector folds the log, and the gateway is a
// handler for WebSockets beside your own routes. Several such processes share a database
// if they use [pubsub.NewRedis] in place of [pubsub.NewMemory].
func Example() {
	run := func(ctx context.Context, databaseURL string, tokens gateway.Authenticator) error {
		serving, folding, err := open(ctx, databaseURL)
		if err != nil {
			return err
		}
		defer serving.Close()
		defer folding.Close()
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", ":8080")
		if err != nil {
			return err
		}
		return serve(ctx, serving, folding, tokens, listener)
	}
	_ = run
}

// serve folds the log and serves clients until ctx is done.
func serve(ctx context.Context, serving, folding *pgxpool.Pool, tokens gateway.Authenticator, l net.Listener) error {
	log, err := events.Open(ctx, serving)
	if err != nil {
		return err
	}
	bus := pubsub.NewMemory()
	defer bus.Close()
	p, err := projector.New(projector.Config{Pool: folding, Log: log, Bus: bus})
	if err != nil {
		return err
	}
	g, err := gateway.New(gateway.Config{
		Badges: badges.NewReader(serving, log), Commands: commands{log, p, bus}, Authenticator: tokens, Bus: bus,
		PartitionOf: log.Route, RoomsOf: log.PartitionOf, RoomsMoved: log.Changed,
	})
	if err != nil {
		return err
	}
	mux := http.NewServeMux() // beside your own routes
	mux.Handle("GET /ws", g)
	server := &http.Server{Handler: mux}
	running, ctx := errgroup.WithContext(ctx)
	context.AfterFunc(ctx, func() { _ = server.Close() }) // the gateway ends its own connections
	running.Go(func() error { return p.Run(ctx) })
	running.Go(func() error { return g.Run(ctx) })
	running.Go(func() error { return server.Serve(l) })
	if err := running.Wait(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// open creates or updates the schema, and returns two pools: folding must not wait behind
// requests.
func open(ctx context.Context, databaseURL string) (serving, folding *pgxpool.Pool, err error) {
	cfg, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return nil, nil, err
	}
	if _, err := migrations.Up(ctx, migrations.Config{Conn: cfg.ConnConfig, Partitions: migrations.DefaultPartitions}); err != nil {
		return nil, nil, err
	}
	if serving, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, nil, err
	}
	cfg = cfg.Copy()
	projector.ConfigurePool(cfg)
	folding, err = pgxpool.NewWithConfig(ctx, cfg)
	return serving, folding, err
}

// commands appends what users do in their apps to the log.
type commands struct {
	log       *events.Log
	projector *projector.Projector
	bus       pubsub.Bus
}

func (c commands) Read(ctx context.Context, identity gateway.Identity, key, conversationID string, upToSeq int64) error {
	return c.append(ctx, identity.UserID, key, events.ConversationRead, events.Data{ConversationID: conversationID, UpToSeq: upToSeq, ByApp: true})
}

func (c commands) Seen(ctx context.Context, identity gateway.Identity, key, conversationID string, upToSeq int64) error {
	return c.append(ctx, identity.UserID, key, events.ConversationSeen, events.Data{ConversationID: conversationID, UpToSeq: upToSeq, ByApp: true})
}

func (c commands) SeenAll(ctx context.Context, identity gateway.Identity, key, category string) error {
	return c.append(ctx, identity.UserID, key, events.UserSeenAll, events.Data{Category: category, AllCategories: category == ""})
}

func (c commands) SetLevel(ctx context.Context, identity gateway.Identity, key, category, level string) error {
	return c.append(ctx, identity.UserID, key, events.CategoryLevelSet, events.Data{Category: category, Level: events.Level(level), ByApp: true})
}

func (c commands) ReadAll(ctx context.Context, identity gateway.Identity, key, category string) error {
	return c.append(ctx, identity.UserID, key, events.UserReadAll, events.Data{Category: category, AllCategories: category == ""})
}

func (c commands) MarkUnread(ctx context.Context, identity gateway.Identity, key, conversationID string, messages gateway.Messages) error {
	return c.append(ctx, identity.UserID, key, events.ConversationMarkedUnread, events.Data{ConversationID: conversationID, Seqs: messages.Seqs, FromSeq: messages.FromSeq})
}

func (c commands) append(ctx context.Context, userID, key string, t events.Type, d events.Data) error {
	if key == "" {
		key = uuid.NewString()
	}
	d.UserIDs = []string{userID}
	receipt, err := c.log.Append(ctx, events.Event{ID: userID + "/" + key, Source: "my-app", Type: t, Data: d})
	if bad, ok := errors.AsType[*events.BatchError](err); ok {
		return invalid{bad.Events[0].Err}
	}
	for _, partition := range receipt.Partitions { // or the projector looks within PollInterval
		c.projector.Wake(partition)
	}
	if err == nil {
		_ = c.bus.Wake(ctx, receipt.Partitions) // those of other processes
	}
	return err
}

// invalid is a [gateway.InvalidError]: the client gets its message.
type invalid struct{ error }

func (e invalid) Invalid() string { return e.Error() }
