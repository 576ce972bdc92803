package rig

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/pg/embedpg"
	"github.com/badged/badged/tests/bench/contest"
)

// durable are the settings that must be on for a valid measurement.
func durable() map[string]string {
	return map[string]string{"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
}

// settingsSQL returns the version, and the settings with the most influence on results.
const settingsSQL = `SELECT current_setting('server_version') || ': ' || string_agg(name || '=' || current_setting(name), ' ')
FROM unnest(string_to_array('fsync synchronous_commit full_page_writes wal_compression wal_sync_method wal_level commit_delay '
	'shared_buffers wal_buffers work_mem max_wal_size min_wal_size checkpoint_timeout autovacuum random_page_cost jit max_connections', ' ')) AS name`

// startPostgres starts a server with the settings of `badged demo`, except that checkpoints are so rare
// that a run fits between two, and that full pages in the WAL are compressed, which needs PostgreSQL 15.
// It reads the settings back. sharedBuffers, unless empty, overrides the demo's setting. statements
// enables statement statistics, which cost some time.
func startPostgres(run *contest.Run, dir, sharedBuffers string, statements bool) (_ *embedpg.Server, says string) {
	settings := map[string]string{"max_wal_size": "8GB", "min_wal_size": "8GB", "wal_compression": "lz4"}
	maps.Copy(settings, durable())
	if sharedBuffers != "" {
		settings["shared_buffers"] = sharedBuffers
	}
	if statements {
		settings["shared_preload_libraries"] = "pg_stat_statements"
		settings["pg_stat_statements.max"], settings["pg_stat_statements.track_planning"] = "20000", "on"
	}
	server := contest.Must(embedpg.Start(run.Context(), embedpg.Config{DataDir: dir, Settings: settings}))
	run.Cleanup(func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, stopTimeout)
		defer cancel()
		return server.Stop(ctx)
	})
	contest.Check(scan(run.Context(), server.URL(), settingsSQL, &says))
	for name, value := range durable() {
		if !strings.Contains(says, name+"="+value) {
			contest.Check(fmt.Errorf("the private Postgres does not run with %s = %s: %s", name, value, says))
		}
	}
	return server, says
}

// inDatabase connects to a database of the private Postgres and calls do with the connection.
func inDatabase(ctx context.Context, url string, do func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connect to the private Postgres: %w", err)
	}
	return errors.Join(do(conn), conn.Close(ctx))
}

// scan reads the row that a query in a database returns.
func scan(ctx context.Context, url, sql string, into ...any) error {
	return inDatabase(ctx, url, func(conn *pgx.Conn) error { return conn.QueryRow(ctx, sql).Scan(into...) })
}

// Database creates an empty database after a checkpoint, so that no writes of an earlier round are
// pending. drop removes the database, at the latest at the end of the run.
func (r *Rig) Database(run *contest.Run) (url string, drop func(context.Context) error) {
	r.databases++
	name := fmt.Sprintf("round_%d", r.databases)
	contest.Check(ExecIn(run.Context(), r.Postgres.URL(), "CREATE DATABASE "+name, "CHECKPOINT"))
	drop = func(ctx context.Context) error {
		return ExecIn(ctx, r.Postgres.URL(), "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
	}
	run.Cleanup(drop)
	return r.Postgres.DatabaseURL(name), drop
}

// ExecIn runs statements in a database.
func ExecIn(ctx context.Context, url string, statements ...string) error {
	return inDatabase(ctx, url, func(conn *pgx.Conn) error {
		for _, sql := range statements {
			if _, err := conn.Exec(ctx, sql); err != nil {
				return fmt.Errorf("%s: %w", sql, err)
			}
		}
		return nil
	})
}

// Transactions returns how many transactions the databases have committed, including transactions that
// only read. The statistics may not include the last second.
func Transactions(run *contest.Run, urls []string) (sum int64) {
	for _, url := range urls {
		var n int64
		contest.Check(scan(run.Context(), url, `SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()`, &n))
		sum += n
	}
	return sum
}
