package projector

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/internal/pgsession"
)

// The host of a session with locks is asked whether it is there. (What Postgres
// makes of that on a Unix-domain socket, as here, is nothing.)
func TestSessionsWithLocksAreWatched(t *testing.T) {
	d := newDatabase(t)
	conn, err := pgsession.OpenSession(t.Context(), d.pool.Config().ConnConfig, "badged test")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var watched []string
	if err := conn.QueryRow(t.Context(), `SELECT current_setting('application_name') || array_agg(name ORDER BY name)
FROM pg_settings WHERE name LIKE 'tcp\_%' AND source = 'session'`).Scan(&watched); err != nil {
		t.Fatal(err)
	}
	want := []string{"badged test", "tcp_keepalives_count", "tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_user_timeout"}
	if diff := cmp.Diff(want, watched); diff != "" {
		t.Errorf("the session (-want +got):\n%s", diff)
	}
}
