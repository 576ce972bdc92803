//go:build unix

package rig

import (
	"fmt"
	"syscall"
)

// OpenFilesLimit returns the limit on open files and sockets of a process. Go
// programs raise it to the hard limit at start.
func OpenFilesLimit() (uint64, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("read the limit of open files: %w", err)
	}
	return limit.Cur, nil
}
