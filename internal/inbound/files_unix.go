//go:build unix

package inbound

import (
	"math"
	"syscall"
)

// Files returns how many open files this process may have.
func Files() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return unknownFiles
	}
	return int(min(uint64(limit.Cur), math.MaxInt32)) // its type differs between systems
}
