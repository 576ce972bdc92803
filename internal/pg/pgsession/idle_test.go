package pgsession_test

import (
	"runtime"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/pg/pgsession"
)

// HasNews does not wait for another reader of the socket; pgx has one after a slow write.
func TestHasNewsDoesNotBlock(t *testing.T) {
	cfg, err := pgx.ParseConfig(pgtest.NewDB(t, pgtest.Template{}))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	socket := conn.PgConn().Conn()
	read := make(chan struct{})
	began := make(chan struct{})
	go func() {
		defer close(read)
		close(began)
		_, _ = socket.Read(make([]byte, 1)) // until it is closed
	}()
	<-began
	for range 1000 { // enough that the reader runs meanwhile
		if pgsession.HasNews(conn) {
			t.Fatal("an idle connection has news")
		}
		runtime.Gosched()
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Error(err)
	}
	<-read
	if !pgsession.HasNews(conn) {
		t.Error("a closed connection has no news")
	}
}

// A pool replaces a connection that the server has ended just after its last use.
func TestCheckIdle(t *testing.T) {
	cfg, err := pgxpool.ParseConfig(pgtest.NewDB(t, pgtest.Template{}))
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 1
	pgsession.CheckIdle(cfg)
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	admin, err := pgx.ConnectConfig(t.Context(), cfg.ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(t.Context())
	pid := func() (n int) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), `SELECT pg_backend_pid()`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	first := pid()
	if again := pid(); again != first {
		t.Errorf("a connection that works was replaced")
	}
	if pgsession.HasNews(admin) {
		t.Error("an idle connection has news")
	}
	// With a timeout, pg_terminate_backend waits until the session has ended.
	pgtest.Exec(t, admin, `SELECT pg_terminate_backend($1, 60000)`, first)
	if again := pid(); again == first {
		t.Error("the session has not ended")
	}
}
