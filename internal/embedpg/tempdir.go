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

// socketPathLimit is the length of a unix socket's path that every system
// takes, and socketName what PostgreSQL names its own.
const (
	socketPathLimit = 103
	port            = "5432"
	socketName      = ".s.PGSQL." + port
	tempDirPrefix   = "badged-pg-"
)

// makeTempDir makes a directory that only the account and root can enter, for
// the socket and, if data is set, for data that last until Stop. It is locked
// by the file returned. On the way it removes those that processes left when
// they were killed.
func makeTempDir(ctx context.Context, as account, bin binaries, data bool) (*os.File, error) {
	bases := []string{os.TempDir(), "/tmp"}
	if dir := memoryDir(); data && dir != "" {
		// What need not last need not reach a disk. Databases of a few hundred
		// files each come and go ten times faster there.
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
		// Another process's sweep took it for litter before it was locked.
		if err != nil && !errors.Is(err, errLocked) && !errors.Is(err, fs.ErrNotExist) {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
	}
}

// sweepTempDirs removes the temporary directories of servers that are gone.
// What cannot be removed is left for another time.
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
