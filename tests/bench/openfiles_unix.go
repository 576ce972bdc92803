//go:build unix

package main

import (
	"fmt"
	"syscall"
)

// openFilesLimit returns how many files and sockets a process may have open.
// Go programs raise their limit to the hard one as they start.
func openFilesLimit() (uint64, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("read the limit of open files: %w", err)
	}
	return limit.Cur, nil
}
