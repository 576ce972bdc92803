package relay_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/internal/bridge/relay"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/schematest"
	"github.com/badged/badged/migrations"
)

// unopened returns the outbox of an unavailable database, and what opens it. Each attempt
// sends to tried.
func unopened(t *testing.T, url string) (cfg relay.Config, to *target, tried chan struct{}) {
	t.Helper()
	pool, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	outbox, err := relay.NewOutbox(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(outbox.Close)
	if err := outbox.Check(t.Context()); !relay.Away(err) {
		t.Fatalf("an outbox that is away: %v", err)
	}
	to, tried = newTarget(nil), make(chan struct{}, 100)
	return relay.Config{Outbox: outbox, Target: to, Check: func(ctx context.Context) error {
		err := outbox.Check(ctx)
		tried <- struct{}{}
		return err
	}}, to, tried
}

// A relay that starts while the database of the outbox is away is not healthy, and carries
// once it is available again.
func TestRelayWaitsForTheDatabaseOfTheOutbox(t *testing.T) {
	t.Parallel()
	server := pgtest.NewServer(t)
	url := server.NewDB(t, schematest.Outbox())
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	publish(t, pool, "a", "b")
	pool.Close()
	server.Kill()
	cfg, to, tried := unopened(t, url)
	r, err := relay.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if r.Health() == nil {
		t.Error("it is healthy before it has reached the outbox")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	for range 2 { // it goes on after an attempt that failed
		select {
		case <-tried:
		case err := <-done:
			t.Fatalf("it ends while the outbox is away: %v", err)
		}
	}
	if err := r.Health(); !relay.Away(err) {
		t.Errorf("while the outbox is away: %v", err)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	to.await(t, 2)
	if err := r.Health(); err != nil {
		t.Errorf("once the outbox is back: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A database that turns out to have no outbox ends the relay, as it does when it starts.
func TestRelayEndsWithoutAnOutbox(t *testing.T) {
	t.Parallel()
	server := pgtest.NewServer(t)
	url := server.NewDB(t, pgtest.Template{})
	server.Kill()
	cfg, _, tried := unopened(t, url)
	r, err := relay.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- r.Run(t.Context()) }()
	<-tried
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	for len(tried) > 0 {
		<-tried
	}
	for range 3 { // the first attempt may have begun before
		select {
		case <-tried:
			continue
		case err := <-done:
			if !errors.Is(err, migrations.ErrNoOutbox) {
				t.Errorf("it ends with %v", err)
			}
			return
		}
	}
	t.Error("it goes on without an outbox")
}

// A relay that is told to end while it waits for the outbox ends without an error.
func TestRelayEndsWhileItWaitsForTheOutbox(t *testing.T) {
	t.Parallel()
	server := pgtest.NewServer(t)
	url := server.NewDB(t, schematest.Outbox())
	server.Kill()
	defer func() { // whose databases are dropped
		if err := server.Restart(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	cfg, _, tried := unopened(t, url)
	r, err := relay.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	<-tried
	cancel()
	if err := <-done; err != nil {
		t.Errorf("it ends with %v", err)
	}
}
