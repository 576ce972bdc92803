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
// directory stays locked until this process and all processes of the server have ended. A data
// directory has a second lock, which only this process holds. If the first lock is held and the
// second lock is free, then the process that started the server was killed, and the server is
// stopping. The operating system releases these locks when processes end, so the locks are never
// stale. The process id in postmaster.pid can be stale: after a crash another process may have
// the same id.

// errLocked means that another process holds the lock.
var errLocked = errors.New("locked")

// lock locks an open file or directory. It does not wait: if another process holds the lock, it
// fails with errLocked. Closing the file releases the lock unless a child process has inherited
// the file. lock ignores other errors, since some network file systems do not support locks; on
// such file systems only postmaster.pid prevents two servers on the same data.
func lock(f *os.File, err error) (*os.File, error) {
	if err != nil {
		return nil, err
	}
	if errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK) {
		return nil, errors.Join(errLocked, f.Close())
	}
	return f, nil
}

// openDataDir creates and locks the data directory. It returns the major version of the cluster
// in the directory, or 0 if there is no cluster yet.
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

// lockInterval is the pause before claim tries again to lock a directory whose server is
// stopping.
const lockInterval = 10 * time.Millisecond

// claim creates dir if it is missing, and locks it. If the process that used dir before was killed,
// its server may still be stopping: claim waits until the server has stopped. If the process still
// runs, claim fails.
func (s *Server) claim(ctx context.Context, dir string) (err error) {
	// Give all users access to the directory, independently of the umask: if this process runs as
	// root, another user runs the server. The contents have stricter permissions.
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

// socketPathLimit is the maximum length of the path of a Unix socket that all systems support.
// socketName is the file name that PostgreSQL gives its socket.
const (
	socketPathLimit = 103
	port            = "5432"
	socketName      = ".s.PGSQL." + port
	tempDirPrefix   = "badged-pg-"
)

// makeTempDir creates a directory for the socket, to which only the account and root have access.
// If data is true, the server's data will be in the same directory. The returned file holds the
// lock on the directory. makeTempDir also removes the directories of killed processes.
func makeTempDir(runAs *account, data bool) (*os.File, error) {
	var bases []string
	if dir := memoryDir(); data && dir != "" {
		// Temporary data need not survive a crash, so prefer memory: there, creating and dropping
		// a database of a few hundred files is ten times faster than on a disk.
		bases = append(bases, dir)
	}
	if dir := os.TempDir(); runAs == nil && len(filepath.Join(dir, tempDirPrefix+"4294967295", socketName)) <= socketPathLimit {
		bases = append(bases, dir) // another account might have no access to this directory
	}
	var errs []error
	for _, base := range append(bases, "/tmp") {
		sweepTempDirs(base, runAs)
		locked, err := makeTempDirIn(base, runAs)
		if err == nil {
			return locked, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("make a directory for the socket: %w", errors.Join(errs...))
}

func makeTempDirIn(base string, runAs *account) (*os.File, error) {
	for {
		dir, err := os.MkdirTemp(base, tempDirPrefix)
		if err != nil {
			return nil, err
		}
		locked, err := lock(os.Open(dir)) //nolint:gosec // made here
		if err == nil {
			if _, err = os.Stat(dir); err == nil {
				err = runAs.chown(dir)
			}
			if err == nil {
				return locked, nil
			}
			err = errors.Join(err, locked.Close())
		}
		// In another process, sweepTempDirs may lock or remove the directory before this process
		// locks it. Then try again.
		if !errors.Is(err, errLocked) && !errors.Is(err, fs.ErrNotExist) {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
	}
}

// sweepTempDirs removes the temporary directories of the account whose servers have ended. It
// ignores errors, since the next call tries again.
func sweepTempDirs(base string, runAs *account) {
	uid := os.Geteuid()
	if runAs != nil {
		uid = int(runAs.Uid)
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
