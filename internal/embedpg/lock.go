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
// so a directory is locked exactly as long as this process or a process of the
// server lives. Such a lock cannot be stale, unlike the process id in
// postmaster.pid, which another process may have after a crash.

// errLocked means that another process holds the lock.
var errLocked = errors.New("locked")

// lockDir locks a directory without waiting. Closing the file unlocks it
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

// How long a server whose parent was killed may take to report that it is
// stopping, and how often to check.
const (
	stoppingGrace = time.Second
	lockInterval  = 10 * time.Millisecond
)

// claimDataDir creates dir if missing and locks it. It waits for a server that
// is stopping.
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
			// Some network file systems have no locks; then postmaster.pid
			// must keep servers apart.
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

// makeDataDir creates dir if missing, whatever the umask, so that other users
// can pass through: as root, the server's user must. Its contents are closed
// to others.
func makeDataDir(dir string) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return nil // opening it reports what is wrong
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

// isAt reports whether path still names the directory f.
func isAt(f *os.File, path string) bool {
	opened, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(path)
	return err == nil && os.SameFile(opened, named)
}
