package embedpg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// clusterMajor returns the major version that made the cluster in pgdata, or 0
// if there is none yet.
func clusterMajor(pgdata string) (int, error) {
	if pgdata == "" {
		return 0, nil
	}
	version, err := os.ReadFile(filepath.Join(pgdata, "PG_VERSION")) //nolint:gosec // the caller chooses its directory
	if err == nil {
		major, err := parseMajor(string(version))
		if err != nil {
			return 0, fmt.Errorf("%w: %s: %w", ErrNotCluster, pgdata, err)
		}
		return major, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("data directory: %w", err)
	}
	entries, err := os.ReadDir(pgdata)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("data directory: %w", err)
	case len(entries) > 0:
		return 0, fmt.Errorf("%w: %s is not empty and has no PG_VERSION: choose another directory, or move its contents away",
			ErrNotCluster, pgdata)
	}
	return 0, nil
}

// initCluster creates a cluster in a neighboring directory and renames it, so
// that an interrupted one is never taken for a database.
func (s *Server) initCluster(ctx context.Context, flags ...string) (err error) {
	fresh := s.pgdata + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return fmt.Errorf("make a database: %w", err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("make a database in %s: %w", s.pgdata, errors.Join(err, os.RemoveAll(fresh)))
		}
	}()
	if err := os.Mkdir(fresh, 0o700); err != nil {
		return err
	}
	if err := s.account.own(fresh); err != nil {
		return err
	}
	args := append([]string{
		"--pgdata", fresh,
		"--username", role,
		"--encoding", "UTF8",
		// Sorting by bytes is fastest, and upgrades of the system's collations
		// cannot corrupt indexes.
		"--locale", "C",
		// Only the server's user and root can enter the socket's directory,
		// and both may read and change the data anyway, so authentication
		// would protect nothing. Peer authentication would shut out root,
		// which is our user if the server runs as another.
		"--auth-local", "trust",
		"--auth-host", "reject",
		"--no-instructions",
	}, flags...)
	initdb := s.account.command(ctx, fresh, s.bin.initdb(), args...)
	initdb.ExtraFiles = s.held // initdb may outlive us briefly to clean up
	if err := run(initdb); err != nil {
		return err
	}
	// An empty directory may be in its place.
	if err := os.Remove(s.pgdata); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(fresh, s.pgdata); err != nil {
		return err
	}
	return syncDir(filepath.Dir(s.pgdata))
}

func syncDir(dir string) error {
	f, err := os.Open(dir) //nolint:gosec // the caller chooses its directory
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// postmaster is the content of postmaster.pid.
type postmaster struct {
	pid    int
	status string // starting, ready, stopping or standby
}

// readPostmaster returns false if there is no such file or it cannot be
// understood. A server that was killed leaves one behind.
func readPostmaster(pgdata string) (postmaster, bool) {
	content, err := os.ReadFile(filepath.Join(pgdata, "postmaster.pid")) //nolint:gosec // the caller chooses its directory
	if err != nil {
		return postmaster{}, false
	}
	lines := bytes.Split(content, []byte("\n"))
	pid, err := strconv.Atoi(strings.TrimSpace(string(lines[0])))
	if err != nil {
		return postmaster{}, false
	}
	p := postmaster{pid: max(pid, -pid)} // negative for a single-user server
	if len(lines) > 7 {
		p.status = string(bytes.TrimSpace(lines[7]))
	}
	return p, true
}

// clearStalePID removes a postmaster.pid whose process id now belongs to
// another program. This happens after a power loss and in containers, where
// the same few ids are reused: PostgreSQL would take any live process of its
// own user for a server and refuse to start. If the process is gone,
// PostgreSQL handles the file, with checks of its own. The data directory must
// be locked.
func clearStalePID(ctx context.Context, pgdata string) error {
	old, found := readPostmaster(pgdata)
	if !found || errors.Is(syscall.Kill(old.pid, 0), syscall.ESRCH) {
		return nil
	}
	if servesFrom(ctx, old.pid, pgdata) {
		return inUse(filepath.Dir(pgdata), old.pid)
	}
	if err := os.Remove(filepath.Join(pgdata, "postmaster.pid")); err != nil {
		return fmt.Errorf("remove a stale lock file: %w", err)
	}
	return nil
}
