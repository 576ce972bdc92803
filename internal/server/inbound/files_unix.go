//go:build unix

package inbound

import (
	"math"
	"syscall"
)

// Files returns how many files this process may have open at a time.
func Files() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return unknownFiles
	}
	return int(min(uint64(limit.Cur), math.MaxInt32)) // its type differs between systems
}
