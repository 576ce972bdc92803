// Package memory returns how much memory this process may use.
//
// The package does not know what uses the memory.
package memory

import (
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// Limit returns the memory limit of this process in bytes: GOMEMLIMIT, or else the limit of its
// container or cgroup. ok is false if there is no limit. root is the root of the file system.
func Limit(root string) (bytes int64, ok bool) {
	if given := debug.SetMemoryLimit(-1); given < math.MaxInt64 {
		return given, true
	}
	return ofGroup(root)
}

// ofGroup returns the smallest limit of this process's cgroup and of the cgroups above it.
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
		// Try the parents too: in a container the group is often mounted as the root, and
		// its own path does not exist there.
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

// unlimited is smaller than the number with which cgroups version 1 express "no limit".
const unlimited = 1 << 60

// share is the part of the limit that Go tries not to exceed. The rest is for memory that Go
// does not count, and for bursts.
const share = 0.9

// Heed makes the garbage collector run more often near the limit of the container, unless
// GOMEMLIMIT is set. Otherwise garbage can double the memory of a process.
func Heed(root string) {
	if debug.SetMemoryLimit(-1) < math.MaxInt64 {
		return
	}
	if bytes, ok := ofGroup(root); ok {
		debug.SetMemoryLimit(int64(share * float64(bytes)))
	}
}
