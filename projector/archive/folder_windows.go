package archive

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// tryLock locks a file, and reports whether it was free.
func tryLock(f *os.File) (bool, error) {
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, new(windows.Overlapped))
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return false, nil
	}
	return err == nil, err
}

// syncDir does nothing: NTFS keeps a journal of names, and directories cannot be
// flushed.
func syncDir(string) error { return nil }
