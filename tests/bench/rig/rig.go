// Package rig starts what scenarios measure: the binary and its processes, and Postgres on a disk. It
// also measures processor time, memory and the write-ahead log.
package rig

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/badged/badged/internal/pg/embedpg"
	"github.com/badged/badged/tests/bench/contest"
)

// Rig is shared by all scenarios: the binary and a Postgres on a disk.
type Rig struct {
	// Setting is everything that results depend on apart from the scenarios' code.
	Setting []contest.Parameter
	Binary  string
	// Profile is the directory for profiles; empty means none.
	Profile string

	dir       string // of this run
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
	Log           contest.Progress
}

// New builds the binary and starts Postgres, until the end of the run.
func New(run *contest.Run, cfg Config) *Rig {
	r := &Rig{Profile: cfg.Profile}
	r.Setting = examineMachine() // before this run loads it
	var err error
	if r.dir, err = MakeDir(cfg.Dir); err != nil {
		contest.Check(fmt.Errorf("make the data directory: %w; give a directory with -dir", err))
	}
	run.Cleanup(func(context.Context) error { return os.RemoveAll(r.dir) })
	r.Setting = append(r.Setting, examineDisk(r.dir))
	cfg.Log.Say("building the binary")
	r.Binary = filepath.Join(r.dir, ProgramServer)
	r.Setting = append(r.Setting, contest.Parameter{Name: "badged", Value: build(run.Context(), r.Binary) + ", " + runtime.Version()})
	cfg.Log.Say("starting Postgres in %s", r.dir)
	var postgres string
	r.Postgres, postgres = startPostgres(run, filepath.Join(r.dir, "postgres"), cfg.SharedBuffers, cfg.Profile != "")
	r.Setting = append(r.Setting, contest.Parameter{Name: "Postgres", Value: postgres}, examineRedis(run.Context()))
	return r
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
	return named, os.Symlink(binary, named)
}
