package rig

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/embedpg"
)

// Postgres is the version and settings of the server, as it reports them.
type Postgres struct {
	Version  string      `json:"version"`
	Settings []Parameter `json:"settings"`
}

// Parameter is one setting as SHOW gives it.
type Parameter struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

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

// startPostgres starts a server with the settings of `badged demo`, but with
// room for a run between two checkpoints and compressed pages in the WAL, which
// need PostgreSQL 15, and reads the settings back.
// sharedBuffers overrides the demo's unless empty. statements turns on
// statement statistics, which cost some time.
func startPostgres(ctx context.Context, dir, sharedBuffers string, statements bool) (_ *embedpg.Server, says Postgres, err error) {
	settings := durable()
	settings["max_wal_size"], settings["min_wal_size"] = "8GB", "8GB"
	settings["wal_compression"] = "lz4"
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
	defer func() {
		if err != nil {
			stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
			defer cancel()
			err = errors.Join(err, server.Stop(stopCtx))
		}
	}()
	conn, err := pgx.Connect(ctx, server.URL())
	if err != nil {
		return nil, says, fmt.Errorf("connect to the private Postgres: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	show := func(name string) (value string, err error) {
		if err := conn.QueryRow(ctx, "SHOW "+name).Scan(&value); err != nil {
			return "", fmt.Errorf("show %s: %w", name, err)
		}
		return value, nil
	}
	if says.Version, err = show("server_version"); err != nil {
		return nil, says, err
	}
	for _, name := range shown() {
		value, err := show(name)
		if err != nil {
			return nil, says, err
		}
		if want, ok := durable()[name]; ok && value != want {
			return nil, says, fmt.Errorf("the private Postgres runs with %s = %s", name, value)
		}
		says.Settings = append(says.Settings, Parameter{name, value})
	}
	return server, says, nil
}
