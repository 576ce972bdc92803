package obs_test

import (
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/obs"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m).Run()) }

func TestRegisterPool(t *testing.T) {
	cfg, err := pgxpool.ParseConfig(pgtest.NewDB(t, pgtest.Template{}))
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	registry := prometheus.NewRegistry()
	obs.RegisterPool(registry, "serving", pool)
	check := func(want ...string) {
		t.Helper()
		got := page(t, registry)
		for _, line := range want {
			if !strings.Contains(got, "badged_postgres_"+line+"\n") {
				t.Errorf("the page lacks %s:\n%s", line, got)
			}
		}
	}
	check(`connections_max{pool="serving"} 1`, `connections{pool="serving",state="in_use"} 0`, `connection_waits_total{pool="serving"} 0`)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	check(`connections{pool="serving",state="in_use"} 1`, `connections{pool="serving",state="idle"} 0`, `connection_waits_total{pool="serving"} 1`)
	if strings.Contains(page(t, registry), `connection_wait_seconds_total{pool="serving"} 0`+"\n") {
		t.Error("making a connection took no time")
	}
	conn.Release()
	check(`connections{pool="serving",state="in_use"} 0`, `connections{pool="serving",state="idle"} 1`)
}
