//go:build unix

package inbound

import (
	"math"
	"syscall"
)

// Files returns the limit of open files of this process.
func Files() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return unknownFiles
	}
	return int(min(uint64(limit.Cur), math.MaxInt32)) // its type differs between systems
}
