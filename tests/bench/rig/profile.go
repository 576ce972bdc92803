package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"

	"github.com/jackc/pgx/v5"
)

// startProfile starts profiling if the options ask for it. The returned function
// ends it and writes a CPU profile of this process and the statement statistics
// of Postgres.
func (r *Rig) startProfile(ctx context.Context) (stop func(context.Context) error, err error) {
	if r.Profile == "" {
		return func(context.Context) error { return nil }, nil
	}
	path := profilePath(r.Profile, r.Running)
	if err := r.Exec(ctx, "CREATE EXTENSION IF NOT EXISTS pg_stat_statements", "SELECT pg_stat_statements_reset()"); err != nil {
		return nil, err
	}
	f, err := os.Create(path + ".pprof") //nolint:gosec // where the user wants it
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func(ctx context.Context) error {
		pprof.StopCPUProfile()
		return errors.Join(f.Close(), r.writeStatements(ctx, path+".statements.txt"))
	}, nil
}

// profilePath returns the path of the files of a measurement, without their endings. Names
// of sides may have slashes.
func profilePath(dir, running string) string {
	return filepath.Join(dir, strings.ReplaceAll(running, "/", "-"))
}

// statementsSQL sums up statements that differ only in the partition.
const statementsSQL = `SELECT regexp_replace(regexp_replace(query, '_p[0-9]+', '_pNN', 'g'), '\s+', ' ', 'g') AS statement,
       sum(calls)::bigint, sum(total_exec_time), sum(total_plan_time), sum(rows)::bigint, sum(wal_bytes)::bigint,
       sum(shared_blks_hit)::bigint, sum(shared_blks_read)::bigint
FROM pg_stat_statements GROUP BY 1 ORDER BY sum(total_exec_time) + sum(total_plan_time) DESC LIMIT 25`

func (r *Rig) writeStatements(ctx context.Context, file string) error {
	text := "   calls   total ms    plan ms     rows    WAL KiB   hit pages  read pages  statement\n"
	err := inDatabase(ctx, r.Postgres.URL(), func(conn *pgx.Conn) error {
		var statement string
		var calls, n, wal, hit, read int64
		var ms, planned float64
		rows, _ := conn.Query(ctx, statementsSQL)
		_, err := pgx.ForEachRow(rows, []any{&statement, &calls, &ms, &planned, &n, &wal, &hit, &read}, func() error {
			text += fmt.Sprintf("%8d %10.1f %10.1f %8d %10d %11d %11d  %.160s\n", calls, ms, planned, n, wal>>10, hit, read, statement)
			return nil
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("read the statistics of statements: %w", err)
	}
	return os.WriteFile(file, []byte(text), 0o644) //nolint:gosec // nothing in it is secret
}
