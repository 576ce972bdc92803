//go:build unix

package archive

import (
	"errors"
	"os"
	"syscall"
)

// tryLock locks a file. It returns false if another process has locked it.
func tryLock(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// syncDir makes the entries of a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir) //nolint:gosec // the directory that the user named, or one above it
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
