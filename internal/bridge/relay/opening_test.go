package relay_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/internal/bridge/relay"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/devtest/schematest"
	"github.com/badged/badged/migrations"
)

// unopened returns a relay of the outbox of an unavailable database. Each attempt to open that
// sends to tried.
func unopened(t *testing.T, url string) (r *relay.Relay, to *target, tried chan struct{}) {
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
	r, err = relay.New(relay.Config{Outbox: outbox, Target: to, Check: func(ctx context.Context) error {
		err := outbox.Check(ctx)
		tried <- struct{}{}
		return err
	}})
	if err != nil {
		t.Fatal(err)
	}
	return r, to, tried
}

// A relay that starts while the database of the outbox is away is not healthy, and carries
// once it is available again.
func TestRelayWaitsForTheDatabaseOfTheOutbox(t *testing.T) {
	t.Parallel()
	server := pgtest.NewServer(t)
	url := server.NewDB(t, schematest.Outbox())
	pool := newPoolOn(t, url)
	publish(t, pool, "a", "b")
	pool.Close()
	server.Kill()
	r, to, tried := unopened(t, url)
	if r.Health() == nil {
		t.Error("it is healthy before it has reached the outbox")
	}
	projectortest.Run(t, r.Run)
	for range 2 { // it goes on after an attempt that failed
		projectortest.Await(t, tried, "an attempt")
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
}

// A database that turns out to have no outbox ends the relay, as it does when it starts.
func TestRelayEndsWithoutAnOutbox(t *testing.T) {
	t.Parallel()
	server := pgtest.NewServer(t)
	url := server.NewDB(t, pgtest.Template{})
	server.Kill()
	r, _, tried := unopened(t, url)
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
	r, _, tried := unopened(t, url)
	stop := projectortest.Run(t, r.Run)
	<-tried
	stop()
}
