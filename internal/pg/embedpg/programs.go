package embedpg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
)

// oldest is the oldest supported major version: the first that has SQL functions with a RETURN
// body.
const oldest = 14

// install tells users how to install a server.
const install = `install PostgreSQL 14 or later, such as with "apt-get install postgresql" (Debian, Ubuntu), ` +
	`"dnf install postgresql-server" (Fedora) or "brew install postgresql@17" (macOS)`

// programs are the programs of one installed PostgreSQL version.
type programs struct {
	dir string
	// version is what `postgres --version` prints.
	version string
	major   int
}

// serverDirs returns patterns of the directories in which distributions install servers. These
// directories are not in PATH, since several versions may be installed.
func serverDirs() []string {
	return []string{
		"/usr/lib/postgresql/*/bin",         // Debian, Ubuntu
		"/usr/pgsql-*/bin",                  // packages of postgresql.org for Red Hat
		"/usr/libexec/postgresql*",          // Alpine
		"/opt/homebrew/opt/postgresql*/bin", // Homebrew on ARM, Intel and Linux
		"/usr/local/opt/postgresql*/bin",
		"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",
		"/Applications/Postgres.app/Contents/Versions/*/bin",
		"/opt/local/lib/postgresql*/bin", // MacPorts
		"/usr/local/pgsql/bin",           // built from source
	}
}

// find returns the programs of a server that the account can run. If major is not 0, the server
// must have this major version. find prefers the server in PATH. If PATH has no suitable server,
// find returns the newest server in the directories that match a pattern in dirs, or in the
// directory that pg_config --bindir prints. If it finds no server, it calls fetch, which
// downloads a server and returns the directory of its programs.
func find(ctx context.Context, runAs *account, major int, dirs []string, fetch func(ctx context.Context, major int) (string, error)) (programs, error) {
	var best programs
	var unfit []string
	consider := func(dir string) {
		switch p, err := inspect(ctx, runAs, dir); {
		case errors.Is(err, fs.ErrNotExist): // a directory with client programs only
		case err != nil:
			unfit = append(unfit, fmt.Sprintf("%s cannot be used: %v", dir, err))
		case p.major < oldest || major != 0 && p.major != major:
			unfit = append(unfit, fmt.Sprintf("%s has version %d", dir, p.major))
		case p.major > best.major:
			best = p
		}
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		consider(filepath.Dir(path))
	}
	if best.major == 0 {
		for _, pattern := range dirs {
			found, _ := filepath.Glob(pattern) // the only error is a bad pattern
			for _, dir := range found {
				consider(dir)
			}
		}
		if dir, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
			consider(strings.TrimSpace(string(dir)))
		}
	}
	if ctx.Err() != nil {
		return programs{}, fmt.Errorf("look for PostgreSQL: %w", context.Cause(ctx))
	}
	if best.major != 0 {
		return best, nil
	}
	dir, err := fetch(ctx, major)
	if err == nil {
		if best, err = inspect(ctx, runAs, dir); err == nil {
			return best, nil
		}
	}
	err = fmt.Errorf("%s%w", strings.Join(append(unfit, ""), "; "), err)
	if major != 0 {
		return programs{}, fmt.Errorf("no PostgreSQL %d found, the version that created the data: install it too, or choose another directory (%w)", major, err)
	}
	return programs{}, fmt.Errorf("no PostgreSQL server found: %s (%w)", install, err)
}

// inspect returns the programs of the server in dir. To get the version, it runs `postgres
// --version` as the account that will run the server.
func inspect(ctx context.Context, runAs *account, dir string) (p programs, err error) {
	// Resolve symbolic links: the other programs are in the directory of the real file.
	path, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres"))
	if err != nil {
		return p, err
	}
	p.dir = filepath.Dir(path)
	if _, err := filepath.EvalSymlinks(filepath.Join(p.dir, "initdb")); err != nil {
		return p, err
	}
	out, err := runAs.command(ctx, "/", path, "--version").Output()
	if err != nil {
		return p, fmt.Errorf("%s --version: %w", path, err)
	}
	p.version = strings.TrimSpace(string(out))
	// Such as "postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)", or with "18beta1".
	if _, err := fmt.Sscanf(p.version, "postgres (PostgreSQL) %d", &p.major); err != nil {
		return p, fmt.Errorf("no version of PostgreSQL in %q", p.version)
	}
	return p, nil
}
