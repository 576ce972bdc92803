// Package rig starts what scenarios measure: the binary and its processes, and Postgres on a disk. It
// also measures processor time, memory and the write-ahead log.
package rig

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/badged/badged/internal/pg/embedpg"
)

// Rig is shared by all scenarios: the binary and a Postgres on a disk.
type Rig struct {
	Config
	Setting Setting
	Binary  string

	// Running names the current measurement.
	Running string

	dir       string // of this run; removed by Close
	Postgres  *embedpg.Server
	databases int // made so far
}

// Config configures a rig.
type Config struct {
	// Dir is where Postgres stores its data, on a disk; empty means the user's
	// application data directory.
	Dir string
	// Profile is the directory for profiles; empty means none.
	Profile string
	// SharedBuffers is a setting of Postgres; empty means the value of badged demo.
	SharedBuffers string
	Log           Progress
}

// Progress prints progress, a line at a time.
type Progress struct{ W io.Writer }

// Say prints a line.
func (p Progress) Say(format string, args ...any) {
	_, _ = fmt.Fprintf(p.W, "bench: "+format+"\n", args...) // progress is not essential
}

// New builds the binary and starts Postgres.
func New(ctx context.Context, cfg Config) (_ *Rig, err error) {
	r := &Rig{Config: cfg}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close(ctx))
		}
	}()
	r.Setting.Machine = thisMachine() // before this run loads it
	r.Setting.Go = runtime.Version()
	if r.dir, err = MakeDir(cfg.Dir); err != nil {
		return nil, err
	}
	if r.Setting.Disk, err = examineDisk(r.dir); err != nil {
		return nil, err
	}
	r.Log.Say("building the binary")
	r.Binary = filepath.Join(r.dir, ProgramServer)
	if r.Setting.Commit, err = build(ctx, r.Binary); err != nil {
		return nil, err
	}
	r.Log.Say("starting Postgres in %s (%s)", r.dir, r.Setting.Disk.Filesystem)
	if r.Postgres, r.Setting.Postgres, err = startPostgres(ctx, filepath.Join(r.dir, "postgres"), cfg.SharedBuffers, cfg.Profile != ""); err != nil {
		return nil, err
	}
	if r.Setting.Redis, err = examineRedis(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// MakeDir makes the directory of this run below dir.
func MakeDir(dir string) (made string, err error) {
	if dir == "" {
		if dir, err = embedpg.DefaultDataDir("badged"); err != nil {
			return "", fmt.Errorf("%w; give a directory with -dir", err)
		}
	}
	if err = os.MkdirAll(dir, 0o755); err == nil { //nolint:gosec // as root, Postgres runs as another user
		made, err = os.MkdirTemp(dir, "bench-")
	}
	if err == nil {
		err = os.Chmod(made, 0o755) //nolint:gosec // as above
	}
	if err != nil {
		return "", fmt.Errorf("make the data directory: %w", err)
	}
	return made, nil
}

// build builds the product's binary as it is shipped, without the race detector, and returns its
// commit. It runs go in the product's module, because go records the commit only for a program of the
// main module. The working directory must be in the product's module or in the benchmarks' module.
func build(ctx context.Context, binary string) (commit string, err error) {
	const module = "github.com/badged/badged"
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("find module %s from the working directory; run bench in its repository: %w", module, err)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=auto", "-trimpath", "-o", binary, "./cmd/badged") //nolint:gosec // a path of our own
	cmd.Dir = strings.TrimSpace(string(root))
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build badged: %w\n%s", err, out)
	}
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return "", fmt.Errorf("read the commit of the binary: %w", err)
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	commit = settings["vcs.revision"]
	if commit == "" {
		return "unknown", nil
	}
	if settings["vcs.modified"] == "true" {
		return commit[:12] + " with changes", nil
	}
	return commit[:12], nil
}

// stopTimeout is ample for the last checkpoint of a round's data.
const stopTimeout = time.Minute

// Close stops Postgres and removes the files of the run, even if ctx is done.
func (r *Rig) Close(ctx context.Context) (err error) {
	if r.Postgres != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		err = r.Postgres.Stop(ctx)
	}
	if r.dir != "" {
		err = errors.Join(err, os.RemoveAll(r.dir))
	}
	return err
}

// UnderName returns a path at which the binary has the name of its program, since processor time and
// memory are read by the names of processes. For the binary "" it returns "".
func (r *Rig) UnderName(binary, program string) (string, error) {
	if binary == "" || filepath.Base(binary) == program {
		return binary, nil
	}
	binary, err := filepath.Abs(binary)
	if err != nil {
		return "", fmt.Errorf("find %s: %w", binary, err)
	}
	dir, err := os.MkdirTemp(r.dir, "other-")
	if err != nil {
		return "", fmt.Errorf("make a directory for %s: %w", binary, err)
	}
	named := filepath.Join(dir, program)
	if err := os.Symlink(binary, named); err != nil {
		return "", fmt.Errorf("give %s the name %s: %w", binary, program, err)
	}
	return named, nil
}
