package archive

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// tryLock locks a file. It returns false if another process has locked it.
func tryLock(f *os.File) (bool, error) {
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, new(windows.Overlapped))
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return false, nil
	}
	return err == nil, err
}

// syncDir does nothing: NTFS journals names, and directories cannot be flushed.
func syncDir(string) error { return nil }
