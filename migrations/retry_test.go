package migrations_test

import (
	"errors"
	"io/fs"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/badged/badged/migrations"
)

// withOneMore returns the migrations and an additional one that runs sql.
func withOneMore(t *testing.T, sql string) fs.FS {
	t.Helper()
	all := fstest.MapFS{"99999_one_more.sql": {Data: []byte("-- +goose Up\n" + sql)}}
	names, err := fs.Glob(migrations.Files(), "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		data, err := fs.ReadFile(migrations.Files(), name)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = &fstest.MapFile{Data: data}
	}
	return all
}

// session opens a session, begins a transaction, and returns a function that runs statements.
func session(t *testing.T, cfg *pgx.ConnConfig) func(sql string) {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	run := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Errorf("%s: %v", sql, err)
		}
	}
	run(`BEGIN`)
	return run
}

func awaitWaiting(t *testing.T, cfg *pgx.ConnConfig, query string) {
	t.Helper()
	for len(column(t, cfg, `SELECT pid::text FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '`+query+`%'`)) == 0 {
		if t.Context().Err() != nil {
			t.Fatal("nothing waits")
		}
	}
}

const alterBoth = `
ALTER TABLE badged.conversations ADD COLUMN one_more text;
ALTER TABLE badged.users ADD COLUMN one_more text;`

// A migration and a batch lock tables in opposite orders. The migration is rolled back, so that
// the batch can commit, and succeeds at the next attempt.
func TestDeadlockedMigrationIsTriedAgain(t *testing.T) {
	cfg := emptyDatabase(t)
	up(t, cfg, 1)
	batch := session(t, cfg)
	// With this timeout the migration's session detects the deadlock, and so it fails.
	batch(`SET LOCAL deadlock_timeout = '1h'; LOCK TABLE badged.users IN ROW EXCLUSIVE MODE`)
	var refused []error
	retrying := func(err error, _ time.Duration) { refused = append(refused, err) }
	done := make(chan error, 1)
	var applied []migrations.Migration
	go func() {
		var err error
		applied, err = migrations.UpFrom(t.Context(), migrations.Config{Conn: cfg, Retrying: retrying}, withOneMore(t, alterBoth), []time.Duration{time.Millisecond})
		done <- err
	}()
	awaitWaiting(t, cfg, "ALTER TABLE badged.users")
	batch(`LOCK TABLE badged.conversations IN ROW EXCLUSIVE MODE`)
	batch(`COMMIT`)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	var pgErr *pgconn.PgError
	if len(refused) != 1 || !errors.As(refused[0], &pgErr) || pgErr.Code != "40P01" {
		t.Errorf("it was refused with %v, want a deadlock", refused)
	}
	if got, want := names(applied), []string{"99999 99999_one_more.sql"}; !slices.Equal(got, want) {
		t.Errorf("it applied %v, want %v", got, want)
	}
}

// A migration that never acquires its locks fails and changes nothing.
func TestMigrationGivesUpOnALock(t *testing.T) {
	cfg := emptyDatabase(t)
	up(t, cfg, 1)
	reader := session(t, cfg)
	reader(`LOCK TABLE badged.users IN ACCESS SHARE MODE`)
	attempts := 1
	_, err := migrations.UpFrom(t.Context(), migrations.Config{Conn: cfg, Retrying: func(error, time.Duration) { attempts++ }},
		withOneMore(t, alterBoth), []time.Duration{time.Millisecond})
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.Code != "55P03" || attempts != 2 {
		t.Errorf("after %d attempts it fails with %v", attempts, err)
	}
	if got := column(t, cfg, `SELECT attrelid::regclass::text FROM pg_attribute WHERE attname = 'one_more'`); len(got) != 0 {
		t.Errorf("it has altered %v", got)
	}
}
