package pgsession_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/pg/pgsession"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

// Sessions with locks have keepalives, so that Postgres ends a session whose host vanished.
func TestSessionsWithLocksHaveKeepalives(t *testing.T) {
	cfg, err := pgx.ParseConfig(pgtest.NewDB(t, pgtest.Template{}))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgsession.OpenSession(t.Context(), cfg, "badged test")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var set []string
	if err := conn.QueryRow(t.Context(), `SELECT current_setting('application_name') || array_agg(name ORDER BY name)
FROM pg_settings WHERE name LIKE 'tcp\_%' AND source = 'session'`).Scan(&set); err != nil {
		t.Fatal(err)
	}
	want := []string{"badged test", "tcp_keepalives_count", "tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_user_timeout"}
	if diff := cmp.Diff(want, set); diff != "" {
		t.Errorf("the session (-want +got):\n%s", diff)
	}
}
