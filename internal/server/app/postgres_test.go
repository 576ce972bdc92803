package app

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/obs"
	"github.com/badged/badged/internal/pg/pgfault"
)

// Sessions that were opened while a database was read-only stay read-only. Those that only
// read never see an error of it: readiness must not report what they say for as long as they live.
func TestReadinessForgetsSessionsThatAreReadOnly(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), pgtest.NewDB(t, pgtest.Template{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	const sessions = 3
	held := make([]*pgxpool.Conn, sessions)
	for i := range held {
		if held[i], err = pool.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := held[i].Exec(t.Context(), "SET default_transaction_read_only = on"); err != nil {
			t.Fatal(err)
		}
	}
	for _, conn := range held {
		conn.Release()
	}
	faults := pgfault.NewWatch(prometheus.NewRegistry())
	for range sessions {
		if err := checkPostgres(t.Context(), pool, faults); !obs.IsImpaired(err) {
			t.Fatalf("a read-only session is reported as %v", err)
		}
	}
	if err := checkPostgres(t.Context(), pool, faults); err != nil {
		t.Errorf("Postgres is writable again, and readiness reports %v", err)
	}
}

func TestReadinessSaysThatTheLoginIsRefused(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDB(t, pgtest.Template{})
	operator := pgtest.Connect(t, url)
	role := "expelled_" + strings.ToLower(rand.Text()) // roles are of the whole server
	pgtest.Exec(t, operator, `CREATE ROLE `+role+` LOGIN`)
	t.Cleanup(func() {
		if _, err := operator.Exec(context.WithoutCancel(t.Context()), `DROP ROLE `+role); err != nil {
			t.Error(err)
		}
	})
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.User = role
	faults := pgfault.NewWatch(prometheus.NewRegistry())
	faults.Configure(cfg.ConnConfig)
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if err := checkPostgres(t.Context(), pool, faults); err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, operator, `ALTER ROLE `+role+` NOLOGIN`)
	pool.Reset()
	if err := checkPostgres(t.Context(), pool, faults); err == nil || err.Error() != pgfault.LoginRefused.String() {
		t.Errorf("the login is refused, and readiness reports %v", err)
	}
}
