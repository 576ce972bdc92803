package pgneeds_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/pg/pgneeds"
)

func connect(t *testing.T, url string, more ...string) *pgx.Conn {
	t.Helper()
	conn := pgtest.Connect(t, url)
	for _, sql := range more {
		pgtest.Exec(t, conn, sql)
	}
	return conn
}

// Postgres meets every need, and the tests of the needs leave no objects in the database.
func TestPostgresMeetsAllNeeds(t *testing.T) {
	conn := connect(t, pgtest.NewDB(t, pgtest.Template{}))
	for range 2 {
		for _, n := range pgneeds.All() {
			if err := n.Try(t.Context(), conn); err != nil {
				t.Errorf("%s: %v", n.Name, err)
			}
		}
	}
	var left int
	if err := conn.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM pg_class WHERE relname ~ 'badged_need') + (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory')
    + (SELECT count(*) FROM pg_prepared_statements WHERE name = 'badged_need')`).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d things are left, %v", left, err)
	}
}

// Needs that a server does not meet are named. To simulate other servers, the test creates
// functions with the names of Postgres's functions and other answers.
func TestOtherServersFail(t *testing.T) {
	conn := connect(t, pgtest.NewDB(t, pgtest.Template{}), `CREATE SCHEMA other`,
		`CREATE FUNCTION other.pg_try_advisory_lock(bigint) RETURNS boolean LANGUAGE sql RETURN true`,
		`CREATE FUNCTION other.pg_current_wal_lsn() RETURNS pg_lsn LANGUAGE plpgsql AS $$ BEGIN RAISE feature_not_supported; END $$`,
		`CREATE FUNCTION other.pg_visible_in_snapshot(xid8, pg_snapshot) RETURNS boolean LANGUAGE sql RETURN true`,
		`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = other, pg_catalog', current_database()); END $$`)
	conn = connect(t, conn.Config().ConnString())
	failed := map[string]bool{}
	for _, n := range pgneeds.All() {
		if err := n.Try(t.Context(), conn); err != nil {
			failed[n.Name] = true
		}
	}
	for _, want := range []string{"transaction ids", "advisory locks", "functions for the WAL position"} {
		found := false
		for name := range failed {
			found = found || strings.HasPrefix(name, want)
		}
		if !found {
			t.Errorf("%s: not among the failures %v", want, failed)
		}
	}
	if len(failed) != 3 {
		t.Errorf("failed: %v", failed)
	}
}

// If the role may not create temporary tables, the need is reported as not tried, and the
// check does not fail.
func TestRoleWithoutTemporaryTables(t *testing.T) {
	owner := connect(t, pgtest.NewDB(t, pgtest.Template{}),
		`DO $$ BEGIN EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC', current_database()); END $$`,
		`CREATE ROLE needs_tester`, `SET ROLE needs_tester`)
	t.Cleanup(func() {
		for _, sql := range []string{`RESET ROLE`, `DROP ROLE needs_tester`} {
			if _, err := owner.Exec(t.Context(), sql); err != nil {
				t.Log(err)
			}
		}
	})
	for _, n := range pgneeds.All() {
		err := n.Try(t.Context(), owner)
		if isTables := strings.HasPrefix(n.Name, "partitioned tables"); errors.Is(err, pgneeds.ErrNotTried) != isTables || err != nil && !isTables {
			t.Errorf("%s: %v", n.Name, err)
		}
	}
}

// The documentation lists every need.
func TestNeedsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/postgres.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range pgneeds.All() {
		if !strings.Contains(string(page), "\n- "+n.Name+"\n") {
			t.Errorf("docs/postgres.md does not list %q", n.Name)
		}
	}
}
