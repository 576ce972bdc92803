// Package rig has what scenarios run on: the binary and its processes, Postgres on a
// disk, the traffic to load, and the meter of processor time, memory and the
// write-ahead log.
package rig

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/embedpg"
)

// Rig is shared by all scenarios: the binary, a Postgres on a disk, and the
// traffic to load.
type Rig struct {
	Log     Progress
	Setting Setting
	Binary  string
	Traffic traffic

	// Running names the current measurement.
	Running string
	// profileDir receives a profile of each measurement; empty means none.
	profileDir string

	Dir       string // of this run; removed by close
	Postgres  *embedpg.Server
	databases int // made so far
}

// Setting is everything that results depend on apart from the scenarios' code.
type Setting struct {
	Machine  Machine  `json:"machine"`
	Go       string   `json:"go"`
	Commit   string   `json:"commit"`
	Disk     Disk     `json:"disk"`
	Postgres Postgres `json:"postgres"`
	Redis    Redis    `json:"redis"`
	Traffic  string   `json:"traffic"`
}

// Config configures a rig.
type Config struct {
	// Dir is where Postgres keeps its data, on a disk; empty means the user's
	// application data directory.
	Dir string
	// Traffic is a file to load; empty generates one.
	Traffic string
	// Profile is the directory for profiles; empty means none.
	Profile string
	// SharedBuffers is a setting of Postgres; empty means the one of badged demo.
	SharedBuffers string
	Log           Progress
}

// New builds the binary and starts Postgres.
func New(ctx context.Context, cfg Config) (_ *Rig, err error) {
	r := &Rig{Log: cfg.Log, profileDir: cfg.Profile}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close(ctx))
		}
	}()
	r.Setting.Machine = thisMachine() // before this run loads it
	r.Setting.Go = runtime.Version()
	if r.Dir, err = MakeDir(cfg.Dir); err != nil {
		return nil, err
	}
	if r.Setting.Disk, err = examineDisk(r.Dir); err != nil {
		return nil, err
	}
	if r.Traffic, err = loadTraffic(cfg.Traffic, r.Dir); err != nil {
		return nil, err
	}
	r.Setting.Traffic = r.Traffic.Says
	r.Log.Say("building the binary")
	if r.Binary, r.Setting.Commit, err = build(ctx, r.Dir); err != nil {
		return nil, err
	}
	r.Log.Say("starting Postgres in %s (%s)", r.Dir, r.Setting.Disk.Filesystem)
	if r.Postgres, r.Setting.Postgres, err = startPostgres(ctx, filepath.Join(r.Dir, "postgres"), cfg.SharedBuffers, r.profileDir != ""); err != nil {
		return nil, err
	}
	if r.Setting.Redis, err = examineRedis(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// MakeDir makes the directory of this run below dir.
func MakeDir(dir string) (string, error) {
	if dir == "" {
		base, err := embedpg.DefaultDataDir("badged")
		if err != nil {
			return "", fmt.Errorf("%w; give a directory with -dir", err)
		}
		dir = base
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // as root, Postgres runs as another user
		return "", fmt.Errorf("make the data directory: %w", err)
	}
	made, err := os.MkdirTemp(dir, "bench-")
	if err != nil {
		return "", fmt.Errorf("make the data directory: %w", err)
	}
	if err := os.Chmod(made, 0o755); err != nil { //nolint:gosec // as above
		return "", fmt.Errorf("let Postgres enter the data directory: %w", err)
	}
	return made, nil
}

// build builds the product's binary in dir as it is shipped, without the race
// detector, and returns its path and commit.
func build(ctx context.Context, dir string) (binary, commit string, err error) {
	binary = filepath.Join(dir, "badged")
	if err := BuildProgram(ctx, "cmd/badged", binary); err != nil {
		return "", "", err
	}
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return "", "", fmt.Errorf("read the commit of the binary: %w", err)
	}
	commit = "unknown"
	var changed string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = " with changes"
		}
	}
	return binary, commit + changed, nil
}

// BuildProgram builds the program in a folder of the repository. It runs go
// there, because only a program of the main module has its commit recorded.
func BuildProgram(ctx context.Context, folder, file string) error {
	root, err := repository(ctx)
	if err != nil {
		return fmt.Errorf("build %s: %w", folder, err)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=auto", "-trimpath", "-o", file, ".") //nolint:gosec // paths of our own
	cmd.Dir = filepath.Join(root, folder)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", folder, err, out)
	}
	return nil
}

// repository returns the folder of the product's module. The working directory
// must be in that module or in the one of the benchmarks.
func repository(ctx context.Context) (string, error) {
	const module = "github.com/badged/badged"
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module)
	out, err := list.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w\n%s", err, exit.Stderr)
		}
		return "", fmt.Errorf("find module %s from the working directory; run bench in its repository: %w", module, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// stopTimeout is ample for the last checkpoint of a round's data.
const stopTimeout = time.Minute

// Close stops Postgres and removes the files of the run, even if ctx is done.
func (r *Rig) Close(ctx context.Context) error {
	var errs []error
	if r.Postgres != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		errs = append(errs, r.Postgres.Stop(ctx))
	}
	if r.Dir != "" {
		errs = append(errs, os.RemoveAll(r.Dir))
	}
	return errors.Join(errs...)
}

// Database makes an empty database after a checkpoint, so that no writes of an
// earlier round are left. drop removes it.
func (r *Rig) Database(ctx context.Context) (url string, drop func(context.Context) error, err error) {
	r.databases++
	name := fmt.Sprintf("round_%d", r.databases)
	if err := r.Exec(ctx, "CREATE DATABASE "+name, "CHECKPOINT"); err != nil {
		return "", nil, err
	}
	return r.Postgres.DatabaseURL(name), func(ctx context.Context) error {
		return r.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)")
	}, nil
}

// Exec runs statements on the private Postgres.
func (r *Rig) Exec(ctx context.Context, statements ...string) error {
	return ExecIn(ctx, r.Postgres.URL(), statements...)
}

// ExecIn runs statements in a database.
func ExecIn(ctx context.Context, url string, statements ...string) (err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connect to the private Postgres: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}
