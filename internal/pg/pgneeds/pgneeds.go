// Package pgneeds lists the features that badged needs in a Postgres server, and tests whether a
// server has each feature.
//
// The package does not know tables of badged: it also tests a server without the schema badged.
// ADR 115 describes the settings of sessions.
package pgneeds

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Need is a feature of the server that badged depends on.
type Need struct {
	// Name describes the feature, as in the list of docs/postgres.md.
	Name string
	try  func(ctx context.Context, conn *pgx.Conn) error
}

// ErrNotTried is returned by Try if the role lacks a privilege that the test requires.
var ErrNotTried = errors.New("not tried")

// All returns all features that badged needs.
func All() []Need {
	return []Need{
		{"transaction ids of 64 bits and snapshots", isTrue(`SELECT pg_current_xact_id() > '0' AND pg_current_snapshot() IS NOT NULL
    AND NOT pg_visible_in_snapshot(pg_current_xact_id(), pg_current_snapshot()) AND pg_snapshot_xmin(pg_current_snapshot()) <= pg_current_xact_id()`)},
		{"advisory locks that end with their session", locks},
		{"settings and prepared statements that last until the session ends", sessions},
		{"partitioned tables, generated columns, policies, and `INSERT … ON CONFLICT`", tables},
		{"functions in PL/pgSQL", run(`DO $$ BEGIN PERFORM 1; END $$`)},
		{"functions for the WAL position, the timeline and the server's start time", isTrue(`SELECT pg_current_wal_lsn() > '0/0' AND length(pg_walfile_name(pg_current_wal_lsn())) = 24 AND pg_postmaster_start_time() <= clock_timestamp()`)},
		{"the list of sessions and of locks", isTrue(`SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = pg_backend_pid()) AND EXISTS (SELECT FROM pg_locks WHERE pid = pg_backend_pid()) AND pg_blocking_pids(pg_backend_pid()) = '{}'`)},
		{"UTF-8 as the encoding of the database", isTrue(`SELECT current_setting('server_encoding') = 'UTF8'`)},
	}
}

// Try tests whether the server of a connection has the feature. If so, it returns nil. The error
// wraps [ErrNotTried] if the role may not run the test; any other error says what failed. Try
// changes nothing permanently.
func (n Need) Try(ctx context.Context, conn *pgx.Conn) error {
	err := n.try(ctx, conn)
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == "42501" {
		return fmt.Errorf("%w: %s", ErrNotTried, refused.Message)
	}
	return err
}

// errDiffers means that the result of a query is not the result that Postgres returns.
var errDiffers = errors.New("the server does not answer as Postgres does")

// isTrue returns a test that passes if a query returns true.
func isTrue(sql string) func(context.Context, *pgx.Conn) error {
	return func(ctx context.Context, conn *pgx.Conn) error {
		var ok *bool
		if err := conn.QueryRow(ctx, sql).Scan(&ok); err != nil {
			return err
		}
		if ok == nil || !*ok {
			return errDiffers
		}
		return nil
	}
}

// run returns a test that passes if all statements succeed. The test runs them in one transaction
// and rolls the transaction back.
func run(statements ...string) func(context.Context, *pgx.Conn) error {
	return func(ctx context.Context, conn *pgx.Conn) (err error) {
		tx, err := conn.Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, tx.Rollback(context.WithoutCancel(ctx))) }()
		for _, sql := range statements {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return nil
	}
}

// tables tests the features that the tables of badged use.
func tables(ctx context.Context, conn *pgx.Conn) error {
	return run(
		`CREATE TEMPORARY TABLE badged_need (id xid8 NOT NULL DEFAULT pg_current_xact_id(), name text NOT NULL COLLATE "C", n bigint, twice bigint GENERATED ALWAYS AS (n * 2) STORED)
    PARTITION BY RANGE (id) ON COMMIT DROP`,
		`CREATE TEMPORARY TABLE badged_need_1 PARTITION OF badged_need FOR VALUES FROM ('0') TO (MAXVALUE) ON COMMIT DROP`,
		`CREATE UNIQUE INDEX ON badged_need_1 (name) INCLUDE (n)`,
		`ALTER TABLE badged_need_1 ENABLE ROW LEVEL SECURITY`,
		`CREATE POLICY sizes ON badged_need_1 USING (true) WITH CHECK (pg_column_size(name) <= 100)`,
		`INSERT INTO badged_need_1 (name, n) VALUES ('a', 1), ('b', 2)`,
		`INSERT INTO badged_need_1 AS t (name, n) VALUES ('a', 3) ON CONFLICT (name) DO UPDATE SET n = excluded.n RETURNING xmax <> 0`,
		`SELECT FROM badged_need_1 ORDER BY name FOR UPDATE SKIP LOCKED`,
	)(ctx, conn)
}

// sessions tests whether settings and prepared statements stay with the session.
func sessions(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, `SELECT set_config('badged.need', 'kept', false)`); err != nil {
		return err
	}
	const query = `SELECT current_setting('badged.need', true) = 'kept'`
	if _, err := conn.Prepare(ctx, "badged_need", query); err != nil {
		return err
	}
	return errors.Join(isTrue("badged_need")(ctx, conn), conn.Deallocate(ctx, "badged_need"))
}

// lockWait limits the wait for the lock of a session that has ended. Postgres needs far less time
// to release the lock.
const lockWait = 5 * time.Second

// locks tests whether an advisory lock of one session blocks another session, and whether the
// lock is released when the first session ends.
func locks(ctx context.Context, conn *pgx.Conn) error {
	other, err := pgx.ConnectConfig(ctx, conn.Config())
	if err != nil {
		return err
	}
	defer func() { _ = other.Close(context.WithoutCancel(ctx)) }()
	var key int64
	if err := other.QueryRow(ctx, `SELECT hashtextextended('badged need ' || pg_backend_pid(), 0)`).Scan(&key); err != nil {
		return err
	}
	var first, second bool
	if err := other.QueryRow(ctx, `SELECT pg_try_advisory_lock($1)`, key).Scan(&first); err != nil {
		return err
	}
	if err := conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1)`, key).Scan(&second); err != nil {
		return err
	}
	if !first || second {
		return errors.New("two sessions have the same lock")
	}
	if err := other.Close(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	if _, err := conn.Exec(ctx, `SELECT pg_advisory_lock($1)`, key); err != nil {
		return fmt.Errorf("the lock of a session that ended is still held: %w", err)
	}
	return isTrue(fmt.Sprintf(`SELECT pg_advisory_unlock(%d)`, key))(ctx, conn)
}
