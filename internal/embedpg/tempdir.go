package embedpg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// socketPathLimit is the longest path of a Unix socket that every system
// supports, and socketName PostgreSQL's name for its socket.
const (
	socketPathLimit = 103
	port            = "5432"
	socketName      = ".s.PGSQL." + port
	tempDirPrefix   = "badged-pg-"
)

// makeTempDir creates a directory that only the account and root can enter,
// for the socket and, if data is set, for data that lasts until Stop. The
// returned file locks it. It also removes directories that killed processes
// left behind.
func makeTempDir(ctx context.Context, as account, bin binaries, data bool) (*os.File, error) {
	bases := []string{os.TempDir(), "/tmp"}
	if dir := memoryDir(); data && dir != "" {
		// Temporary data need not reach a disk. Creating and dropping
		// databases of a few hundred files is ten times faster in memory.
		bases = append([]string{dir}, bases...)
	}
	var errs []error
	for _, base := range bases {
		longest := filepath.Join(base, tempDirPrefix+"4294967295", socketName)
		if len(longest) > socketPathLimit {
			continue
		}
		if err := as.canEnter(ctx, base, bin); err != nil {
			errs = append(errs, err)
			continue
		}
		sweepTempDirs(base, as)
		lock, err := makeTempDirIn(base, as)
		if err == nil {
			return lock, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("make a directory for the socket: %w", errors.Join(errs...))
}

func makeTempDirIn(base string, as account) (*os.File, error) {
	for {
		dir, err := os.MkdirTemp(base, tempDirPrefix)
		if err != nil {
			return nil, err
		}
		lock, err := lockDir(dir)
		switch {
		case err == nil && isAt(lock, dir):
			if err := as.own(dir); err != nil {
				return nil, errors.Join(err, os.RemoveAll(dir), lock.Close())
			}
			return lock, nil
		case err == nil:
			err = lock.Close()
		}
		// Another process's sweep removed it before it was locked.
		if err != nil && !errors.Is(err, errLocked) && !errors.Is(err, fs.ErrNotExist) {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
	}
}

// sweepTempDirs removes the temporary directories of servers that have ended.
// A failure is ignored: a later sweep tries again.
func sweepTempDirs(base string, as account) {
	dirs, _ := filepath.Glob(filepath.Join(base, tempDirPrefix+"*")) // the only error is a bad pattern
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || info.Sys().(*syscall.Stat_t).Uid != as.uid {
			continue
		}
		lock, err := lockDir(dir)
		if err != nil {
			continue
		}
		_ = os.RemoveAll(dir)
		_ = lock.Close()
	}
}
