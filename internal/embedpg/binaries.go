package embedpg

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// oldest is the first supported major version: it introduced RETURN in SQL functions.
const oldest = 14

// install tells how to get a server.
const install = `install PostgreSQL 14 or later, such as with "apt-get install postgresql" (Debian, Ubuntu), ` +
	`"dnf install postgresql-server" (Fedora) or "brew install postgresql@17" (macOS)`

// binaries are the programs of one PostgreSQL version.
type binaries struct {
	dir   string
	major int
	// version is what `postgres --version` prints.
	version string
}

func (b binaries) postgres() string { return filepath.Join(b.dir, "postgres") }
func (b binaries) initdb() string   { return filepath.Join(b.dir, "initdb") }

// places says where to look for server binaries.
type places struct {
	// lookPath finds programs in the user's PATH.
	lookPath func(name string) (string, error)
	// globs are the directories where distributions keep servers, outside PATH
	// since several versions may be installed.
	globs []string
	// fetch downloads a major version, or any if that is 0, and returns the
	// directory of its programs.
	fetch func(ctx context.Context, major int) (string, error)
}

func standardPlaces() places {
	return places{
		lookPath: exec.LookPath,
		globs: []string{
			"/usr/lib/postgresql/*/bin",         // Debian, Ubuntu
			"/usr/pgsql-*/bin",                  // packages of postgresql.org for Red Hat
			"/usr/libexec/postgresql*",          // Alpine
			"/opt/homebrew/opt/postgresql*/bin", // Homebrew on ARM, Intel and Linux
			"/usr/local/opt/postgresql*/bin",
			"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",
			"/Applications/Postgres.app/Contents/Versions/*/bin",
			"/opt/local/lib/postgresql*/bin", // MacPorts
			"/usr/local/pgsql/bin",           // built from source
		},
		fetch: fetchBinaries,
	}
}

// find returns a server that the account can run: of the given major version,
// or if that is 0 the one in PATH, else the newest.
func (p places) find(ctx context.Context, as account, major int) (binaries, error) {
	var best binaries
	var unfit []string
	for _, c := range p.candidates(ctx) {
		b, err := inspect(ctx, as, c.dir)
		switch {
		case ctx.Err() != nil:
			return binaries{}, fmt.Errorf("look for PostgreSQL: %w", context.Cause(ctx))
		case err != nil:
			unfit = append(unfit, fmt.Sprintf("%s cannot be used: %v", c.dir, err))
		case b.major < oldest || major != 0 && b.major != major:
			unfit = append(unfit, fmt.Sprintf("%s has version %d", c.dir, b.major))
		case c.inPath:
			return b, nil
		case b.major > best.major:
			best = b
		}
	}
	if best.major != 0 {
		return best, nil
	}

	dir, fetchErr := p.fetch(ctx, major)
	if fetchErr == nil {
		var b binaries
		if b, fetchErr = inspect(ctx, as, dir); fetchErr == nil {
			return b, nil
		}
	}
	why := fmt.Errorf("%s%w", strings.Join(append(unfit, ""), "; "), fetchErr)
	if major != 0 {
		return binaries{}, fmt.Errorf("%w: it was made by PostgreSQL %d: install that version too, or choose another directory (%w)",
			ErrVersion, major, why)
	}
	return binaries{}, fmt.Errorf("%w: %s (%w)", ErrNoBinaries, install, why)
}

// candidate is a directory with a server.
type candidate struct {
	dir    string
	inPath bool
}

// candidates lists each directory with a server once, the one in PATH first.
func (p places) candidates(ctx context.Context) []candidate {
	var found []candidate
	add := func(dir string, inPath bool) {
		// Follow links: the rest of the installation is beside the target.
		path, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres"))
		if err != nil {
			return
		}
		dir = filepath.Dir(path)
		if !slices.ContainsFunc(found, func(c candidate) bool { return c.dir == dir }) {
			found = append(found, candidate{dir, inPath})
		}
	}
	if path, err := p.lookPath("postgres"); err == nil {
		add(filepath.Dir(path), true)
	}
	for _, glob := range p.globs {
		dirs, _ := filepath.Glob(glob) // the only error is a bad pattern
		for _, dir := range dirs {
			add(dir, false)
		}
	}
	if path, err := p.lookPath("pg_config"); err == nil {
		out, err := exec.CommandContext(ctx, path, "--bindir").Output() //nolint:gosec // from the user's PATH
		if err == nil {
			add(strings.TrimSpace(string(out)), false)
		}
	}
	return found
}

// inspect runs the server in dir to get its version, as the account that will
// run it.
func inspect(ctx context.Context, as account, dir string) (binaries, error) {
	b := binaries{dir: dir}
	if _, err := os.Stat(b.initdb()); err != nil {
		return b, fmt.Errorf("look for initdb: %w", err)
	}
	var out strings.Builder
	cmd := as.command(ctx, "/", b.postgres(), "--version")
	cmd.Stdout = &out
	if err := run(cmd); err != nil {
		return b, err
	}
	b.version = strings.TrimSpace(out.String())
	var err error
	b.major, err = parseMajor(b.version)
	return b, err
}

// parseMajor reads the major version from text such as
// "postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)" or "18beta1".
func parseMajor(version string) (int, error) {
	text := version
	if _, after, found := strings.Cut(version, "(PostgreSQL)"); found {
		text = after
	}
	text = strings.TrimSpace(text)
	end := strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(text)
	}
	major, err := strconv.Atoi(text[:end])
	if err != nil {
		return 0, fmt.Errorf("no PostgreSQL version in %q", strings.TrimSpace(version))
	}
	return major, nil
}
