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
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/tests/bench/contest"
)

// Usage is the cost of some work.
type Usage struct {
	// pace is the rate and the duration of work at full speed.
	pace []contest.Measure
	// Resources are the processor time and peak memory of each program, the sum of the
	// processor time, and the write-ahead log.
	Resources []contest.Measure
}

// All returns all measures.
func (u Usage) All() []contest.Measure { return append(u.pace, u.Resources...) }

// ProcessorTime is the sum of the processor time of the servers that do the work: of
// badged and Postgres, or of Redis.
const ProcessorTime = "CPU badged, Postgres and Redis"

// Meter runs work, which returns its number of events, and measures its cost.
func (r *Rig) Meter(run *contest.Run, work func() (events int)) Usage {
	debug.FreeOSMemory() // do not count the memory of earlier rounds
	walBefore, syncsBefore := r.walUsage(run)
	endProfile := r.startProfile(run)
	watching, stop := context.WithCancel(run.Context())
	defer stop()
	memory := make(chan []contest.Measure, 1)
	go func() { memory <- peakMemory(watching) }()
	cpuBefore, began := readCPU(), time.Now()
	events := work()
	took, cpuAfter := time.Since(began), readCPU()
	stop()
	peaks := <-memory
	endProfile()
	if events == 0 {
		contest.Check(errors.New("nothing happened in the time given"))
	}
	wal, syncs := r.walUsage(run)
	n := float64(events)
	u := Usage{pace: []contest.Measure{
		contest.Of("rate", "events/s", n/took.Seconds()),
		contest.Of("cost", "µs/event", took.Seconds()*1e6/n),
		contest.Of("time", "s", took.Seconds()),
		contest.Of("events", "events", n),
	}}
	sum := contest.Of(ProcessorTime, "µs/event", 0)
	u.Resources = cpuMeasures(cpuBefore, cpuAfter, events)
	for _, m := range u.Resources {
		if m.Name == "CPU badged" || m.Name == "CPU Postgres" || m.Name == "CPU Redis" {
			sum.Value += m.Value
		}
	}
	u.Resources = append(u.Resources, sum,
		contest.Of("WAL", "bytes/event", float64(wal-walBefore)/n),
		contest.Of("fsyncs", "per 1,000 events", float64(syncs-syncsBefore)*1000/n))
	u.Resources = append(u.Resources, peaks...)
	return u
}

// walUsage returns the size and the syncs of the write-ahead log. It reads the position of the log,
// because statistics are delayed. Syncs are only in the statistics, which may not include the last
// second.
func (r *Rig) walUsage(run *contest.Run) (bytes, syncs int64) {
	contest.Check(scan(run.Context(), r.Postgres.URL(), `SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint, wal_sync FROM pg_stat_wal`, &bytes, &syncs))
	return bytes, syncs
}

// memoryInterval is how often memory is read, which takes 10 ms if many processes
// run.
const memoryInterval = 2 * time.Second

// peakMemory samples the memory of this process and its descendants until ctx is done, and returns
// the peak of each program.
func peakMemory(ctx context.Context) (all []contest.Measure) {
	most := map[string]int64{}
	for ended := false; !ended; {
		ended = wait.For(ctx, memoryInterval) != nil
		for program, bytes := range residentMemory() {
			most[program] = max(most[program], bytes)
		}
	}
	for _, part := range parts() {
		if bytes, ok := most[part.program]; ok {
			all = append(all, contest.Of("memory "+part.name, "MiB", float64(bytes)/(1<<20)))
		}
	}
	return all
}

// startProfile starts profiling if the options ask for it. end writes a CPU profile of this
// process and the statement statistics of Postgres.
func (r *Rig) startProfile(run *contest.Run) (end func()) {
	if r.Profile == "" {
		return func() {}
	}
	path := profilePath(r.Profile, run.Name)
	contest.Check(ExecIn(run.Context(), r.Postgres.URL(), "CREATE EXTENSION IF NOT EXISTS pg_stat_statements", "SELECT pg_stat_statements_reset()"))
	f := contest.Must(os.Create(path + ".pprof")) //nolint:gosec // where the user wants it
	run.Cleanup(func(context.Context) error { pprof.StopCPUProfile(); return f.Close() })
	contest.Check(pprof.StartCPUProfile(f))
	return func() {
		pprof.StopCPUProfile()
		text := contest.Must(r.statements(run.Context()))
		contest.Check(os.WriteFile(path+".statements.txt", []byte(text), 0o644)) //nolint:gosec // nothing in it is secret
	}
}

// profilePath returns the path of the files of a measurement, without their endings. Names
// of sides may have slashes.
func profilePath(dir, name string) string {
	return filepath.Join(dir, strings.ReplaceAll(name, "/", "-"))
}

// statementsSQL sums up statements that differ only in the partition.
const statementsSQL = `SELECT regexp_replace(regexp_replace(query, '_p[0-9]+', '_pNN', 'g'), '\s+', ' ', 'g') AS statement,
       sum(calls)::bigint, sum(total_exec_time), sum(total_plan_time), sum(rows)::bigint, sum(wal_bytes)::bigint,
       sum(shared_blks_hit)::bigint, sum(shared_blks_read)::bigint
FROM pg_stat_statements GROUP BY 1 ORDER BY sum(total_exec_time) + sum(total_plan_time) DESC LIMIT 25`

// statements returns a table of the statements that took the most time.
func (r *Rig) statements(ctx context.Context) (text string, err error) {
	text = "   calls   total ms    plan ms     rows    WAL KiB   hit pages  read pages  statement\n"
	err = inDatabase(ctx, r.Postgres.URL(), func(conn *pgx.Conn) error {
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
	return text, err
}
