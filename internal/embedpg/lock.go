package embedpg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// A server's directories are locked by an open file that the server inherits,
// so a directory is locked exactly as long as this process or any process of
// the server lives. Unlike the process id that PostgreSQL leaves in
// postmaster.pid, which after a crash may by now be another process's, a lock
// cannot be stale.

// errLocked says that another process holds the lock.
var errLocked = errors.New("locked")

// lockDir locks a directory without waiting; closing the file unlocks it
// unless a child has inherited it.
func lockDir(dir string) (*os.File, error) {
	f, err := os.Open(dir) //nolint:gosec // the caller chooses its directory
	if err != nil {
		return nil, err
	}
	switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
	case err == nil:
		return f, nil
	case errors.Is(err, syscall.EWOULDBLOCK):
		err = errLocked
		fallthrough
	default:
		return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), f.Close())
	}
}

// How long a server whose parent was killed may take to say that it is
// stopping, and how often to look.
const (
	stoppingGrace = time.Second
	lockInterval  = 10 * time.Millisecond
)

// claimDataDir makes dir if missing and locks it, waiting for a server that is
// stopping.
func claimDataDir(ctx context.Context, dir string) (*os.File, error) {
	if err := makeDataDir(dir); err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}
	ticker := time.NewTicker(lockInterval)
	defer ticker.Stop()
	grace := time.NewTimer(stoppingGrace)
	defer grace.Stop()
	for {
		lock, err := lockDir(dir)
		switch {
		case err == nil:
			return lock, nil
		case errors.Is(err, fs.ErrPermission):
			return nil, fmt.Errorf("%w: %w: run as its owner, or choose another directory", ErrOwner, err)
		case !errors.Is(err, errLocked):
			// Some network file systems have no locks; postmaster.pid is left
			// to keep servers apart.
			return os.Open(dir) //nolint:gosec // the caller chooses its directory
		}
		holder, _ := readPostmaster(filepath.Join(dir, "pgdata"))
		if holder.status == "stopping" {
			grace.Reset(stoppingGrace)
		}
		select {
		case <-ticker.C:
		case <-grace.C:
			return nil, inUse(dir, holder.pid)
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", inUse(dir, holder.pid), context.Cause(ctx))
		}
	}
}

// makeDataDir makes dir if missing, whatever the umask, so that others can pass
// through: as root the server's user must. What it keeps there is closed to all
// others.
func makeDataDir(dir string) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return nil // to be found wanting when it is opened
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // see above
		return err
	}
	return os.Chmod(dir, 0o755) //nolint:gosec // see above
}

func inUse(dir string, pid int) error {
	by := "another process that is starting a server there"
	if pid != 0 {
		by = fmt.Sprintf("the server with process id %d", pid)
	}
	return fmt.Errorf("%w: %s is held by %s: stop that first, or choose another directory", ErrInUse, dir, by)
}

// isAt reports whether f is still the directory that path names.
func isAt(f *os.File, path string) bool {
	opened, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(path)
	return err == nil && os.SameFile(opened, named)
}
