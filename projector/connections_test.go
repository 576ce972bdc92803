package projector

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

func TestConnectionsAreKept(t *testing.T) {
	pool := newPool(t, newDatabase(t).url, func(cfg *pgxpool.Config) { cfg.MaxConns = 6 })
	c := newConnections(pool, 0)
	t.Cleanup(c.release)
	take := func() *pgxpool.Conn {
		t.Helper()
		conn, err := c.take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	first, second, third := take(), take(), take()
	c.keep(first)
	c.keep(second)
	c.keep(third) // more than a third of the pool
	if n := pool.Stat().AcquiredConns(); n != 2 {
		t.Errorf("%d connections of 6 are kept, want 2", n)
	}
	if err := pool.Ping(t.Context()); err != nil { // the pool has a connection for others
		t.Error(err)
	}
	if last, before := take(), take(); last != second || before != first {
		t.Error("the connection used last does not come first")
	}
	c.keep(first)
	c.keep(second)
	c.release()
	if n := pool.Stat().AcquiredConns(); n != 0 {
		t.Errorf("%d connections are kept after release", n)
	}
}

func TestBrokenConnectionIsNotTaken(t *testing.T) {
	d := newDatabase(t)
	c := newConnections(d.pool, 0)
	t.Cleanup(c.release)
	conn, err := c.take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d.exec(t, `SELECT pg_terminate_backend($1, 10000)`, conn.Conn().PgConn().PID())
	c.keep(conn)
	c.kept[0].used = c.kept[0].used.Add(-2 * trusted)
	if conn, err = c.take(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := conn.Ping(t.Context()); err != nil {
		t.Errorf("an idle connection that broke was taken: %v", err)
	}
	c.keep(conn)
}
