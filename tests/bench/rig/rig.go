// Package rig starts what scenarios measure: the binary and its processes, and Postgres on a disk. It
// also measures processor time, memory and the write-ahead log.
package rig

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/procfs"

	"github.com/badged/badged/internal/pg/embedpg"
	"github.com/badged/badged/tests/bench/contest"
)

// Rig is shared by all scenarios: the binary and a Postgres on a disk.
type Rig struct {
	// Dir is where Postgres stores its data, on a disk; empty means the user's
	// application data directory.
	Dir string
	// Profile is the directory for profiles; empty means none.
	Profile string
	// SharedBuffers is a setting of Postgres; empty means the value of badged demo.
	SharedBuffers string

	// Open sets the fields below. Setting is everything that results depend on apart from the
	// scenarios' code.
	Setting   []contest.Parameter
	Binary    string
	Postgres  *embedpg.Server
	dir       string // of this run
	databases int    // made so far
}

// Open builds the binary and starts Postgres, until the end of the run.
func (r *Rig) Open(run *contest.Run, log contest.Progress) {
	r.Setting = examineMachine() // before this run loads it
	var err error
	if r.dir, err = MakeDir(r.Dir); err != nil {
		contest.Check(fmt.Errorf("make the data directory: %w; give a directory with -dir", err))
	}
	run.Cleanup(func(context.Context) error { return os.RemoveAll(r.dir) })
	r.Setting = append(r.Setting, examineDisk(r.dir))
	log.Say("building the binary")
	r.Binary = filepath.Join(r.dir, ProgramServer)
	r.Setting = append(r.Setting, contest.Parameter{Name: "badged", Value: build(run.Context(), r.Binary) + ", " + runtime.Version()})
	log.Say("starting Postgres in %s", r.dir)
	var postgres string
	r.Postgres, postgres = startPostgres(run, filepath.Join(r.dir, "postgres"), r.SharedBuffers, r.Profile != "")
	r.Setting = append(r.Setting, contest.Parameter{Name: "Postgres", Value: postgres}, examineRedis(run.Context()))
}

// MakeDir makes the directory of a run below dir, in which Postgres may run as another user.
func MakeDir(dir string) (made string, err error) {
	if dir == "" {
		if dir, err = embedpg.DefaultDataDir("badged"); err != nil {
			return "", err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // Postgres reads it
		return "", err
	}
	if made, err = os.MkdirTemp(dir, "bench-"); err != nil {
		return "", err
	}
	return made, os.Chmod(made, 0o755) //nolint:gosec // as above
}

// build builds the product's binary as it is shipped, without the race detector, and returns its
// commit. The working directory must be in the product's module or in the benchmarks' module.
func build(ctx context.Context, binary string) (commit string) {
	root := output("go", "list", "-m", "-f", "{{.Dir}}", "github.com/badged/badged")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", binary, "./cmd/badged") //nolint:gosec // a path of our own
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		contest.Check(fmt.Errorf("build badged; run bench in its repository: %w\n%s", err, out))
	}
	return output("git", "-C", root, "describe", "--always", "--dirty", "--abbrev=12")
}

// stopTimeout is ample for the last checkpoint of a round's data.
const stopTimeout = time.Minute

// UnderName returns a path at which the binary has the name of its program, since processor time and
// memory are read by the names of processes. For the binary "" it returns "".
func (r *Rig) UnderName(binary, program string) string {
	if binary == "" || filepath.Base(binary) == program {
		return binary
	}
	named := filepath.Join(contest.Must(os.MkdirTemp(r.dir, "other-")), program)
	contest.Check(os.Symlink(contest.Must(filepath.Abs(binary)), named))
	return named
}

// examineMachine describes the machine, as far as it has /proc, and its load before the run.
func examineMachine() []contest.Parameter {
	var cpu, load string
	var memory float64
	if fs, err := procfs.NewDefaultFS(); err == nil {
		if info, err := fs.CPUInfo(); err == nil && len(info) > 0 {
			cpu = info[0].ModelName
		}
		if m, err := fs.Meminfo(); err == nil && m.MemTotal != nil {
			memory = float64(*m.MemTotal) / (1 << 20)
		}
		if l, err := fs.LoadAvg(); err == nil {
			load = fmt.Sprint(l.Load1, l.Load5, l.Load15)
		}
	}
	return []contest.Parameter{
		{Name: "machine", Value: fmt.Sprintf("%s, %d cores, %.0f GiB", cpu, runtime.GOMAXPROCS(0), memory)},
		{Name: "system", Value: output("uname", "-srm") + "; load before: " + load},
	}
}

// output returns what a program prints, or "unknown" if it fails.
func output(name string, args ...string) string {
	out, err := exec.Command(name, args...).Output() //nolint:gosec,noctx // a short program that we name
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// examineDisk describes the disk of dir, and the time to write and sync 8 KiB, as each commit
// does. It refuses memory, where syncs cost nothing.
func examineDisk(dir string) contest.Parameter {
	filesystem := output("findmnt", "-nro", "FSTYPE,SOURCE", "-T", dir)
	if strings.HasPrefix(filesystem, "tmpfs") || strings.HasPrefix(filesystem, "ramfs") {
		contest.Check(fmt.Errorf("data directory %s (%s) is in memory: a benchmark needs a disk; give a directory on one with -dir", dir, filesystem))
	}
	// As with the write-ahead log, the pages exist before.
	const times, page = 400, 8 << 10
	path := filepath.Join(dir, "sync")
	contest.Check(os.WriteFile(path, make([]byte, times*page), 0o600))
	f := contest.Must(os.OpenFile(path, os.O_RDWR|syscall.O_DSYNC, 0)) //nolint:gosec // a path of our own
	defer f.Close()
	contest.Check(f.Sync())
	var took []float64
	for i := range int64(times) {
		began := time.Now()
		contest.Must(f.WriteAt(make([]byte, page), i*page))
		took = append(took, contest.Milliseconds(time.Since(began)))
	}
	slices.Sort(took)
	return contest.Parameter{Name: "disk", Value: fmt.Sprintf("%s (%s); 8 KiB with O_DSYNC, as with fdatasync: median %.3f ms, p99 %.3f ms (%d times)",
		filesystem, filepath.Dir(dir), contest.Percentile(took, 50), contest.Percentile(took, 99), times)}
}

// examineRedis reads the version and settings of the rivals' servers.
func examineRedis(ctx context.Context) contest.Parameter {
	var says string
	contest.Check(contest.Do(ctx, "settings", func(run *contest.Run) {
		client := NewRedis(run)
		says = contest.Must(client.InfoMap(ctx, "server").Result())["Server"]["redis_version"] + ":"
		for _, name := range []string{"save", "appendonly", "maxmemory", "io-threads"} {
			says += " " + name + "=" + contest.Must(client.ConfigGet(ctx, name).Result())[name]
		}
	}))
	return contest.Parameter{Name: "Redis", Value: says}
}

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
