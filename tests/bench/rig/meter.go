package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/tests/bench/measure"
)

// Usage is the cost of some work.
type Usage struct {
	Events float64 // that were worked on
	// pace is the rate and time of work at full speed.
	pace []measure.Measure
	// Resources are the processor time and peak memory of each program, and the
	// write-ahead log.
	Resources []measure.Measure
}

// All returns all measures.
func (u Usage) All() []measure.Measure { return append(u.pace, u.Resources...) }

// Resource returns one of the resources, 0 if this system does not report it.
func (u Usage) Resource(name string) float64 {
	for _, m := range u.Resources {
		if m.Name == name {
			return m.Value
		}
	}
	return 0
}

// Meter runs work, which returns its number of events, and measures its cost.
func (r *Rig) Meter(ctx context.Context, work func(ctx context.Context) (events int, err error)) (u Usage, err error) {
	debug.FreeOSMemory() // do not count the memory of earlier rounds
	before, err := r.walUsage(ctx)
	if err != nil {
		return u, err
	}
	stopProfile, err := r.startProfile(ctx)
	if err != nil {
		return u, err
	}
	watch := watchMemory()
	cpuBefore, began := ReadCPU(), time.Now()
	events, err := work(ctx)
	took, cpuAfter := time.Since(began), ReadCPU()
	memory := watch()
	if err := errors.Join(err, stopProfile(ctx)); err != nil {
		return u, err
	}
	if events == 0 {
		return u, errors.New("nothing happened in the time given")
	}
	after, err := r.walUsage(ctx)
	if err != nil {
		return u, err
	}
	n := float64(events)
	u.Events = n
	u.pace = []measure.Measure{
		measure.Of("rate", "events/s", n/took.Seconds()),
		measure.Of("cost", "µs/event", took.Seconds()*1e6/n),
		measure.Of("time", "s", took.Seconds()),
		measure.Of("events", "events", n),
	}
	u.Resources = []measure.Measure{
		measure.Of("WAL", "bytes/event", float64(after.bytes-before.bytes)/n),
		measure.Of("fsyncs", "per 1,000 events", float64(after.syncs-before.syncs)*1000/n),
	}
	u.Resources = append(u.Resources, CPUMeasures(cpuBefore, cpuAfter, 0, events)...)
	u.Resources = append(u.Resources, memory...)
	return u, nil
}

// walUsage is the size and the syncs of the write-ahead log.
type walUsage struct{ bytes, syncs int64 }

// walUsageSQL reads the position in the log itself, because statistics are
// delayed. Syncs are only in the statistics and may lack the last second.
const walUsageSQL = `SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint, wal_sync FROM pg_stat_wal`

func (r *Rig) walUsage(ctx context.Context) (u walUsage, err error) {
	conn, err := pgx.Connect(ctx, r.Postgres.URL())
	if err != nil {
		return u, fmt.Errorf("connect to the private Postgres: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	if err := conn.QueryRow(ctx, walUsageSQL).Scan(&u.bytes, &u.syncs); err != nil {
		return u, fmt.Errorf("read the use of the write-ahead log: %w", err)
	}
	return u, nil
}

// memoryInterval is how often memory is read, which takes 10 ms if many processes
// run.
const memoryInterval = 2 * time.Second

// watchMemory watches the memory of this process and its descendants. The returned
// function ends that and returns the peak of each program.
func watchMemory() func() []measure.Measure {
	most := map[string]int64{}
	stop := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(memoryInterval)
		defer tick.Stop()
		for ended := false; ; {
			for program, bytes := range readMemory() {
				most[program] = max(most[program], bytes)
			}
			if ended {
				return
			}
			select {
			case <-stop:
				ended = true
			case <-tick.C:
			}
		}
	})
	return func() []measure.Measure {
		close(stop)
		watching.Wait()
		var all []measure.Measure
		for _, part := range parts() {
			if bytes, ok := most[part.program]; ok {
				all = append(all, measure.Of("memory "+part.name, "MiB", float64(bytes)/(1<<20)))
			}
		}
		return all
	}
}

// startProfile starts profiling if the options ask for it. The returned function
// ends it and writes a CPU profile of this process and the statement statistics
// of Postgres.
func (r *Rig) startProfile(ctx context.Context) (stop func(context.Context) error, err error) {
	if r.profileDir == "" {
		return func(context.Context) error { return nil }, nil
	}
	path := profilePath(r.profileDir, r.Running)
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

func (r *Rig) writeStatements(ctx context.Context, file string) (err error) {
	conn, err := pgx.Connect(ctx, r.Postgres.URL())
	if err != nil {
		return fmt.Errorf("connect to the private Postgres: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	rows, err := conn.Query(ctx, statementsSQL)
	if err != nil {
		return fmt.Errorf("read the statistics of statements: %w", err)
	}
	text := "   calls   total ms    plan ms     rows    WAL KiB   hit pages  read pages  statement\n"
	var statement string
	var calls, n, wal, hit, read int64
	var ms, planned float64
	_, err = pgx.ForEachRow(rows, []any{&statement, &calls, &ms, &planned, &n, &wal, &hit, &read}, func() error {
		text += fmt.Sprintf("%8d %10.1f %10.1f %8d %10d %11d %11d  %.160s\n", calls, ms, planned, n, wal>>10, hit, read, statement)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the statistics of statements: %w", err)
	}
	return os.WriteFile(file, []byte(text), 0o644) //nolint:gosec // nothing in it is secret
}
