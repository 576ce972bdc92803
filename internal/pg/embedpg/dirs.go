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

// A directory of a server is locked by flock on an open file that the server inherits. So the
// directory stays locked as long as this process or a process of the server lives. A data
// directory has a second lock, which only this process holds: if only the second lock is free,
// the server's parent was killed and the server is stopping. These locks cannot be stale. The
// process id in postmaster.pid can be stale: after a crash another process may have the same id.

// errLocked means that another process holds the lock.
var errLocked = errors.New("locked")

// lock locks an open file or directory without waiting, or fails with errLocked. Closing the file
// releases the lock unless a child process has inherited the file. Some network file systems do
// not support locks; there only postmaster.pid prevents two servers on the same data.
func lock(f *os.File, err error) (*os.File, error) {
	if err != nil {
		return nil, err
	}
	if errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK) {
		return nil, errors.Join(errLocked, f.Close())
	}
	return f, nil
}

// openDataDir locks the data directory. It returns the major version of the cluster in the
// directory, or 0 if there is no cluster yet.
func (s *Server) openDataDir(ctx context.Context) (major int, err error) {
	dir, err := filepath.Abs(s.cfg.DataDir)
	if err != nil {
		return 0, fmt.Errorf("data directory %s: %w", s.cfg.DataDir, err)
	}
	s.pgdata = filepath.Join(dir, "pgdata")
	if err = s.claim(ctx, dir); err == nil {
		major, err = clusterMajor(s.pgdata)
	}
	if errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("%w: run as its owner, or choose another directory", err)
	}
	return major, err
}

// lockInterval is how often claim tries to lock a directory whose server is stopping.
const lockInterval = 10 * time.Millisecond

// claim creates dir if it is missing, and locks it. If another server still uses dir because its
// parent was killed, claim waits until this server has stopped.
func (s *Server) claim(ctx context.Context, dir string) (err error) {
	// Let other users enter the directory, whatever the umask is: if this process runs as root,
	// the server's user must enter it. The contents have stricter permissions.
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, 0o755)); err != nil { //nolint:gosec // as above
			return fmt.Errorf("make data directory: %w", err)
		}
	}
	s.owned, err = lock(os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)) //nolint:gosec // the caller chooses its directory
	if errors.Is(err, errLocked) {
		return fmt.Errorf("data directory %s is in use by another process: stop that first, or choose another directory", dir)
	}
	for err == nil {
		var inherited *os.File
		inherited, err = lock(os.Open(dir)) //nolint:gosec // the caller chooses its directory
		if err == nil {
			s.locks = append(s.locks, inherited)
			return nil
		}
		if !errors.Is(err, errLocked) {
			return err
		}
		select {
		case <-time.After(lockInterval):
			err = nil
		case <-ctx.Done():
			err = fmt.Errorf("wait until the last server of %s has stopped: %w", dir, context.Cause(ctx))
		}
	}
	return err
}

// socketPathLimit is the longest path of a Unix socket that every system supports. socketName is
// PostgreSQL's name for its socket.
const (
	socketPathLimit = 103
	port            = "5432"
	socketName      = ".s.PGSQL." + port
	tempDirPrefix   = "badged-pg-"
)

// makeTempDir creates a directory for the socket which only the account and root can enter. If
// data is set, the directory also stores data until Stop. The returned file locks the directory.
// makeTempDir also removes the directories of killed processes.
func makeTempDir(as *account, data bool) (*os.File, error) {
	var bases []string
	if dir := memoryDir(); data && dir != "" {
		// Temporary data need not be written to a disk. In memory, creating and dropping a
		// database of a few hundred files is ten times faster.
		bases = append(bases, dir)
	}
	if dir := os.TempDir(); as == nil && len(filepath.Join(dir, tempDirPrefix+"4294967295", socketName)) <= socketPathLimit {
		bases = append(bases, dir) // only if as is nil: another account may have no access to it
	}
	var errs []error
	for _, base := range append(bases, "/tmp") {
		sweepTempDirs(base, as)
		locked, err := makeTempDirIn(base, as)
		if err == nil {
			return locked, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("make a directory for the socket: %w", errors.Join(errs...))
}

func makeTempDirIn(base string, as *account) (*os.File, error) {
	for {
		dir, err := os.MkdirTemp(base, tempDirPrefix)
		if err != nil {
			return nil, err
		}
		locked, err := lock(os.Open(dir)) //nolint:gosec // made here
		if err == nil {
			if _, err = os.Stat(dir); err == nil {
				err = as.own(dir)
			}
			if err == nil {
				return locked, nil
			}
			err = errors.Join(err, locked.Close())
		}
		// Another process that runs sweepTempDirs may remove the directory before it is locked
		// here.
		if !errors.Is(err, errLocked) && !errors.Is(err, fs.ErrNotExist) {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
	}
}

// sweepTempDirs removes temporary directories whose servers have ended and which belong to the
// account. It ignores errors, since the next call tries again.
func sweepTempDirs(base string, as *account) {
	uid := os.Geteuid()
	if as != nil {
		uid = int(as.Uid)
	}
	dirs, _ := filepath.Glob(filepath.Join(base, tempDirPrefix+"*")) // the only error is a bad pattern
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || int(info.Sys().(*syscall.Stat_t).Uid) != uid {
			continue
		}
		if locked, err := lock(os.Open(dir)); err == nil { //nolint:gosec // as above
			_ = os.RemoveAll(dir)
			_ = locked.Close()
		}
	}
}
