package main

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

// rig is shared by all scenarios: the binary, a Postgres on a disk, and the
// traffic to load.
type rig struct {
	log     progress
	setting setting
	binary  string
	traffic traffic

	// running names the current measurement.
	running string
	// profileDir receives a profile of each measurement; empty means none.
	profileDir string

	dir       string // of this run; removed by close
	pg        *embedpg.Server
	databases int // made so far
}

// setting is everything that results depend on apart from the scenarios' code.
type setting struct {
	Machine  machine  `json:"machine"`
	Go       string   `json:"go"`
	Commit   string   `json:"commit"`
	Disk     disk     `json:"disk"`
	Postgres postgres `json:"postgres"`
	Redis    redis    `json:"redis"`
	Traffic  string   `json:"traffic"`
}

// newRig builds the binary and starts Postgres below o.dir, which must be on a
// disk. If it is empty, the default is the user's application data directory.
func newRig(ctx context.Context, o options, log progress) (_ *rig, err error) {
	r := &rig{log: log, profileDir: o.profile}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close(ctx))
		}
	}()
	r.setting.Machine = thisMachine() // before this run loads it
	r.setting.Go = runtime.Version()
	if r.dir, err = makeDir(o.dir); err != nil {
		return nil, err
	}
	if r.setting.Disk, err = examineDisk(r.dir); err != nil {
		return nil, err
	}
	if r.traffic, err = loadTraffic(o.traffic, r.dir); err != nil {
		return nil, err
	}
	r.setting.Traffic = r.traffic.says
	log.say("building the binary")
	if r.binary, r.setting.Commit, err = build(ctx, r.dir); err != nil {
		return nil, err
	}
	log.say("starting Postgres in %s (%s)", r.dir, r.setting.Disk.Filesystem)
	if r.pg, r.setting.Postgres, err = startPostgres(ctx, filepath.Join(r.dir, "postgres"), o.scale.sharedBuffers(), r.profileDir != ""); err != nil {
		return nil, err
	}
	if r.setting.Redis, err = examineRedis(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// makeDir makes the directory of this run below dir.
func makeDir(dir string) (string, error) {
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
	if err := buildProgram(ctx, "cmd/badged", binary); err != nil {
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

// buildProgram builds the program in a folder of the repository. It runs go
// there, because only a program of the main module has its commit recorded.
func buildProgram(ctx context.Context, folder, file string) error {
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

// close stops Postgres and removes the files of the run, even if ctx is done.
func (r *rig) close(ctx context.Context) error {
	var errs []error
	if r.pg != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		errs = append(errs, r.pg.Stop(ctx))
	}
	if r.dir != "" {
		errs = append(errs, os.RemoveAll(r.dir)) //nolint:gosec // made by newRig
	}
	return errors.Join(errs...)
}

// database makes an empty database after a checkpoint, so that no writes of an
// earlier round are left. drop removes it.
func (r *rig) database(ctx context.Context) (url string, drop func(context.Context) error, err error) {
	r.databases++
	name := fmt.Sprintf("round_%d", r.databases)
	if err := r.exec(ctx, "CREATE DATABASE "+name, "CHECKPOINT"); err != nil {
		return "", nil, err
	}
	return r.pg.DatabaseURL(name), func(ctx context.Context) error {
		return r.exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)")
	}, nil
}

func (r *rig) exec(ctx context.Context, statements ...string) (err error) {
	conn, err := pgx.Connect(ctx, r.pg.URL())
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
