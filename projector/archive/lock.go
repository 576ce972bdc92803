package archive

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	free, err := tryLock(f)
	switch {
	case err != nil:
		err = fmt.Errorf("lock the archive %s: %w", dir, err)
	case !free:
		err = fmt.Errorf("%s: %w", dir, ErrInUse)
	default:
		return f, nil
	}
	return nil, errors.Join(err, f.Close())
}
