package rig

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/pg/embedpg"
)

// shown are the parameters with the most influence on results.
func shown() []string {
	return []string{
		"fsync", "synchronous_commit", "full_page_writes", "wal_compression", "wal_sync_method", "wal_level", "commit_delay",
		"shared_buffers", "wal_buffers", "work_mem", "max_wal_size", "min_wal_size", "checkpoint_timeout",
		"autovacuum", "random_page_cost", "jit", "max_connections",
	}
}

// durable are the parameters that must be on for a valid measurement.
func durable() map[string]string {
	return map[string]string{"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
}

// startPostgres starts a server with the settings of `badged demo`, except that checkpoints are so rare
// that a run fits between two, and that full pages in the WAL are compressed, which needs PostgreSQL 15.
// It reads the settings back. sharedBuffers, unless empty, overrides the demo's setting. statements
// enables statement statistics, which cost some time.
func startPostgres(ctx context.Context, dir, sharedBuffers string, statements bool) (_ *embedpg.Server, says Software, err error) {
	settings := map[string]string{"max_wal_size": "8GB", "min_wal_size": "8GB", "wal_compression": "lz4"}
	maps.Copy(settings, durable())
	if sharedBuffers != "" {
		settings["shared_buffers"] = sharedBuffers
	}
	if statements {
		settings["shared_preload_libraries"] = "pg_stat_statements"
		settings["pg_stat_statements.max"], settings["pg_stat_statements.track_planning"] = "20000", "on"
	}
	server, err := embedpg.Start(ctx, embedpg.Config{DataDir: dir, Settings: settings})
	if err != nil {
		return nil, says, err
	}
	err = inDatabase(ctx, server.URL(), func(conn *pgx.Conn) error {
		if err := conn.QueryRow(ctx, "SHOW server_version").Scan(&says.Version); err != nil {
			return fmt.Errorf("show server_version: %w", err)
		}
		for _, name := range shown() {
			var value string
			if err := conn.QueryRow(ctx, "SHOW "+name).Scan(&value); err != nil {
				return fmt.Errorf("show %s: %w", name, err)
			}
			if want, ok := durable()[name]; ok && value != want {
				return fmt.Errorf("the private Postgres runs with %s = %s", name, value)
			}
			says.Settings = append(says.Settings, Parameter{name, value})
		}
		return nil
	})
	return server, says, err
}

// inDatabase connects to a database of the private Postgres and calls do with the connection.
func inDatabase(ctx context.Context, url string, do func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connect to the private Postgres: %w", err)
	}
	return errors.Join(do(conn), conn.Close(ctx))
}

// Database creates an empty database after a checkpoint, so that no writes of an earlier round are
// pending. drop removes the database.
func (r *Rig) Database(ctx context.Context) (url string, drop func(context.Context) error, err error) {
	r.databases++
	name := fmt.Sprintf("round_%d", r.databases)
	if err := r.Exec(ctx, "CREATE DATABASE "+name, "CHECKPOINT"); err != nil {
		return "", nil, err
	}
	return r.Postgres.DatabaseURL(name), func(ctx context.Context) error {
		return r.Exec(context.WithoutCancel(ctx), "DROP DATABASE "+name+" WITH (FORCE)")
	}, nil
}

// Exec runs statements on the private Postgres.
func (r *Rig) Exec(ctx context.Context, statements ...string) error {
	return ExecIn(ctx, r.Postgres.URL(), statements...)
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
func Transactions(ctx context.Context, urls []string) (sum int64, err error) {
	for _, url := range urls {
		var n int64
		if err := inDatabase(ctx, url, func(conn *pgx.Conn) error {
			return conn.QueryRow(ctx, `SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()`).Scan(&n)
		}); err != nil {
			return 0, fmt.Errorf("count transactions: %w", err)
		}
		sum += n
	}
	return sum, nil
}
