package rig

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/procfs"

	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/tests/bench/contest"
)

// ProcessorTime is the sum of the processor time of the servers that do the work: of
// badged and Postgres, or of Redis.
const ProcessorTime = "CPU badged, Postgres and Redis"

// Meter runs work, which returns its number of events, and measures its rate and cost: the processor
// time and peak memory of each program, and the write-ahead log.
func (r *Rig) Meter(run *contest.Run, work func() (events int)) []contest.Measure {
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
	measures := []contest.Measure{
		contest.Of("rate", "events/s", n/took.Seconds()),
		contest.Of("cost", "µs/event", took.Seconds()*1e6/n),
		contest.Of("time", "s", took.Seconds()),
		contest.Of("events", "events", n),
	}
	sum := contest.Of(ProcessorTime, "µs/event", 0)
	for _, m := range cpuMeasures(cpuBefore, cpuAfter, events) {
		measures = append(measures, m)
		if m.Name == "CPU badged" || m.Name == "CPU Postgres" || m.Name == "CPU Redis" {
			sum.Value += m.Value
		}
	}
	measures = append(measures, sum,
		contest.Of("WAL", "bytes/event", float64(wal-walBefore)/n),
		contest.Of("fsyncs", "per 1,000 events", float64(syncs-syncsBefore)*1000/n))
	return append(measures, peaks...)
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
		table := contest.Must(os.Create(path + ".statements.csv")) //nolint:gosec // as above
		contest.Check(inDatabase(run.Context(), r.Postgres.URL(), func(conn *pgx.Conn) error {
			_, err := conn.PgConn().CopyTo(run.Context(), table, "COPY ("+statementsSQL+") TO STDOUT WITH (FORMAT csv, HEADER)")
			return errors.Join(err, table.Close())
		}))
	}
}

// profilePath returns the path of the files of a measurement, without their endings. Names
// of sides may have slashes.
func profilePath(dir, name string) string {
	return filepath.Join(dir, strings.ReplaceAll(name, "/", "-"))
}

// statementsSQL returns the statements that took the most time. It sums up statements that differ only
// in the partition.
const statementsSQL = `SELECT sum(calls) AS calls, sum(total_exec_time)::numeric(12, 1) AS total_ms, sum(total_plan_time)::numeric(12, 1) AS plan_ms,
       sum(rows) AS rows, sum(wal_bytes) AS wal_bytes, sum(shared_blks_hit) AS hit_pages, sum(shared_blks_read) AS read_pages,
       left(regexp_replace(regexp_replace(query, '_p[0-9]+', '_pNN', 'g'), '\s+', ' ', 'g'), 160) AS statement
FROM pg_stat_statements GROUP BY statement ORDER BY sum(total_exec_time) + sum(total_plan_time) DESC LIMIT 25`

// Names of programs, as processes have them.
const (
	programClient   = "client" // this process
	ProgramServer   = "badged"
	programPostgres = "postgres"
	programRedis    = "redis-server"
	ProgramFan      = "centrifugo"
)

// parts are the measured programs and their names in reports.
func parts() []struct{ name, program string } {
	return []struct{ name, program string }{
		{"badged", ProgramServer},
		{"Postgres", programPostgres},
		{"Redis", programRedis},
		{"centrifugo", ProgramFan},
		{"bench", programClient},
	}
}

// processes returns this process and its live descendants, by program. Systems without
// /proc have none.
func processes() map[string][]procfs.ProcStat {
	running, _ := procfs.AllProcs()
	all := map[int]procfs.ProcStat{}
	for _, p := range running {
		if stat, err := p.Stat(); err == nil { // else it has ended
			all[p.PID] = stat
		}
	}
	self := os.Getpid()
	ours := map[string][]procfs.ProcStat{}
	for pid, stat := range all {
		if pid == self {
			ours[programClient] = append(ours[programClient], stat)
		} else if descends(pid, self, all) {
			ours[stat.Comm] = append(ours[stat.Comm], stat)
		}
	}
	return ours
}

// descends reports whether a process descends from an ancestor.
func descends(pid, ancestor int, all map[int]procfs.ProcStat) bool {
	for pid > 1 {
		if pid = all[pid].PPID; pid == ancestor { // 0 if the parent has ended
			return true
		}
	}
	return false
}

// ResidentMemory returns the resident bytes of a process that are not shared, 0 if it has
// ended.
func ResidentMemory(pid int) int64 {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0
	}
	pages, err := p.Statm()
	if err != nil {
		return 0
	}
	return int64(pages.Resident-pages.Shared) * int64(os.Getpagesize()) //nolint:gosec // far from overflow
}

// residentMemory returns the sum for each program. It leaves out shared memory, such as the
// buffers of Postgres.
func residentMemory() map[string]int64 {
	sums := map[string]int64{}
	for program, all := range processes() {
		for _, p := range all {
			sums[program] += ResidentMemory(p.PID)
		}
	}
	return sums
}

// cpu is the processor time used up to a moment, in seconds.
type cpu struct {
	at time.Time
	// busy is the time of the whole machine, including time taken by the hypervisor.
	busy float64
	// own is the time of each program.
	own map[string]float64
}

// readCPU reads processor times.
func readCPU() cpu {
	now := cpu{at: time.Now(), own: map[string]float64{}}
	if fs, err := procfs.NewDefaultFS(); err == nil {
		stat, _ := fs.Stat() // zero on systems without it
		t := stat.CPUTotal   // guests are in User
		now.busy = t.User + t.Nice + t.System + t.IRQ + t.SoftIRQ + t.Steal
	}
	for program, all := range processes() {
		for _, p := range all {
			now.own[program] += p.CPUTime()
			if program == programPostgres { // its sessions end
				p.UTime, p.STime = uint(p.CUTime), uint(p.CSTime)
				now.own[program] += p.CPUTime()
			}
		}
	}
	return now
}

// cpuMeasures returns the processor time per event between two moments, for each measured program and
// for other processes, which disturb the round.
func cpuMeasures(from, to cpu, events int) (all []contest.Measure) {
	var ours float64
	for program, t := range to.own {
		ours += t - from.own[program]
	}
	for _, part := range parts() {
		if t, ok := to.own[part.program]; ok {
			all = append(all, contest.Of("CPU "+part.name, "µs/event", (t-from.own[part.program])*1e6/float64(events)))
		}
	}
	return append(all, contest.Of(contest.CPUOthers, "cores", max(0, to.busy-from.busy-ours)/to.at.Sub(from.at).Seconds()))
}
