package projector

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/projector/lag"
)

// An open transaction that has written is found, in any database, even if the
// role may see little of other sessions.
func TestOldestWriter(t *testing.T) {
	server := pgtest.NewServer(t)
	d := openDatabase(t, server.NewDB(t, migrated))
	horizon := func(conn *pgx.Conn) (lag.Horizon, bool) {
		t.Helper()
		h, ok, err := lag.OldestWriter(t.Context(), conn)
		if err != nil {
			t.Fatal(err)
		}
		return h, ok
	}
	exec := func(conn *pgx.Conn, sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	connect := func(url string) *pgx.Conn {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(t.Context()) })
		return conn
	}
	me, elsewhere := connect(d.url), connect(server.NewDB(t, pgtest.Template{}))
	exec(me, `BEGIN; SELECT count(*) FROM badged.users; COMMIT`)
	if h, ok := horizon(me); ok {
		t.Errorf("no transaction has written, but the horizon is %+v", h)
	}

	exec(elsewhere, `SET application_name = 'payroll'; BEGIN; CREATE TABLE salaries (n int)`)
	later := connect(d.url)
	exec(later, `BEGIN; SELECT pg_current_xact_id()`)
	h, ok := horizon(me)
	if !ok || h.PID != int(elsewhere.PgConn().PID()) || h.Database != elsewhere.Config().Database || h.User != elsewhere.Config().User ||
		h.Application != "payroll" || h.State != "idle in transaction" || h.Age <= 0 {
		t.Errorf("the oldest is %+v", h)
	}
	// It hides newer events.
	d.append(t, foldtest.Deliver("c", 1, foldtest.User(0, 0)))
	if behind, err := lag.Behind(t.Context(), d.pool, []int{0}); err != nil || len(behind) > 0 {
		t.Errorf("readable: %v %v", behind, err)
	}

	exec(me, `CREATE ROLE nosy; SET ROLE nosy`)
	if h, ok := horizon(me); !ok || h.PID != int(elsewhere.PgConn().PID()) || h.State != "" || h.Age != 0 {
		t.Errorf("to a role that may know little the oldest is %+v", h)
	}
	exec(me, `RESET ROLE; DROP ROLE nosy`)

	exec(elsewhere, `PREPARE TRANSACTION 'payday'`)
	if h, ok := horizon(me); !ok || h.PID != 0 || h.Prepared != "payday" || h.User == "" || h.Database != elsewhere.Config().Database || h.Age <= 0 {
		t.Errorf("the oldest is %+v, want the prepared transaction", h)
	}
	exec(elsewhere, `ROLLBACK PREPARED 'payday'`)
	if h, ok := horizon(me); !ok || h.PID != int(later.PgConn().PID()) {
		t.Errorf("the oldest is %+v, want the next", h)
	}
}

// The horizon is measured, and an old one is logged at intervals, not at every
// measurement.
func TestHorizonIsWatched(t *testing.T) {
	server := pgtest.NewServer(t)
	d := openDatabase(t, server.NewDB(t, migrated))
	var log bytes.Buffer
	p := d.newProjector(t, func(cfg *Config) { cfg.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	var w horizonWatch
	w.look(t.Context(), p)
	if n := count(p.metrics.horizonSeconds); n != 0 {
		t.Errorf("the metric is %d without writers", n)
	}

	tx, err := d.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT pg_current_xact_id()`); err != nil {
		t.Fatal(err)
	}
	w.look(t.Context(), p)
	if log.Len() > 0 {
		t.Errorf("of a young horizon it says %s", log.String())
	}
	w.since = w.since.Add(-2 * oldHorizon) // as if seen long ago
	w.look(t.Context(), p)
	w.look(t.Context(), p)
	if n := strings.Count(log.String(), "blocks the folding of newer events"); n != 1 || !strings.Contains(log.String(), `state="idle in transaction"`) {
		t.Errorf("it says, %d times: %s", n, log.String())
	}
	if n := count(p.metrics.horizonSeconds); n < int(2*oldHorizon/time.Second) {
		t.Errorf("the metric is %d", n)
	}
	w.warn = time.Now().Add(-time.Second)
	w.look(t.Context(), p)
	if n := strings.Count(log.String(), "level=WARN"); n != 2 {
		t.Errorf("a minute later it has said it %d times", n)
	}

	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.look(t.Context(), p)
	if n := count(p.metrics.horizonSeconds); n != 0 {
		t.Errorf("the metric is %d after the end", n)
	}
}
