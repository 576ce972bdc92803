package archive

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// lockName is that of the file that whoever adds to an archive locks. It is a
// file rather than the directory, since some network file systems lock nothing
// that cannot be written.
const lockName = "lock"

// ErrInUse is returned where somebody else adds to the archive.
var ErrInUse = errors.New("somebody else adds to the archive: wait for that to end, or choose another directory")

// lock locks a directory without waiting. Closing the file unlocks it, and so
// does the end of the process.
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
