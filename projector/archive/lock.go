package archive

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// lockName is the file that a writer of the archive locks. Not the directory,
// since some network file systems can lock only writable files.
const lockName = "lock"

// ErrInUse is returned if another process adds to the archive.
var ErrInUse = errors.New("another process adds to the archive: wait until it has finished, or choose another directory")

// lock locks a directory without waiting. Closing the file or ending the
// process unlocks it.
func lock(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o640) //nolint:gosec // the directory that the user named
	if err != nil {
		return nil, fmt.Errorf("lock the archive: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	switch {
	case err == nil:
		return f, nil
	case errors.Is(err, syscall.EWOULDBLOCK):
		err = fmt.Errorf("%s: %w", dir, ErrInUse)
	default:
		err = fmt.Errorf("lock the archive %s: %w", dir, err)
	}
	return nil, errors.Join(err, f.Close())
}
