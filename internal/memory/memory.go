// Package memory knows how much memory this process may take.
//
// It does not know who uses the memory.
package memory

import (
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// Limit returns the memory limit of this process in bytes: that of GOMEMLIMIT, or that of its
// container or cgroup. ok is false if there is none. root is the root of the file system.
func Limit(root string) (bytes int64, ok bool) {
	if given := debug.SetMemoryLimit(-1); given < math.MaxInt64 {
		return given, true
	}
	return ofGroup(root)
}

// ofGroup returns the least limit of the cgroup of this process and those above it.
func ofGroup(root string) (bytes int64, ok bool) {
	groups, err := os.ReadFile(path.Join(root, "proc/self/cgroup")) //nolint:gosec // the root is the caller's
	if err != nil {
		return 0, false // not Linux
	}
	bytes = math.MaxInt64
	for line := range strings.Lines(string(groups)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, _ := strings.Cut(rest, ":")
		dir, file := "sys/fs/cgroup", "memory.max" // version 2
		switch {
		case controllers == "memory":
			dir, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		case controllers != "":
			continue
		}
		// In a container the group is often mounted as the root, where its path does not exist.
		for ; ; group = path.Dir(group) {
			if text, err := os.ReadFile(path.Join(root, dir, group, file)); err == nil { //nolint:gosec // as above
				if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 { // not "max"
					bytes = min(bytes, n)
				}
			}
			if group == "/" || group == "." {
				break
			}
		}
	}
	return bytes, bytes < unlimited
}

// unlimited is less than what version 1 says for no limit.
const unlimited = 1 << 60

// share is the part of a limit that Go tries not to exceed: the rest is for what it does not
// count, and for bursts.
const share = 0.9

// Heed makes the garbage collector work harder near the limit of the container, unless
// GOMEMLIMIT is set. Without that, garbage can double what a process needs.
func Heed(root string) {
	if debug.SetMemoryLimit(-1) < math.MaxInt64 {
		return
	}
	if bytes, ok := ofGroup(root); ok {
		debug.SetMemoryLimit(int64(share * float64(bytes)))
	}
}
