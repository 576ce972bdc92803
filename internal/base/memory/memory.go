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

// Limit returns the memory limit of this process in bytes: GOMEMLIMIT if it is set, otherwise the
// limit of the process's container or cgroup. ok is false if there is no limit. root is the root of
// the file system, "/" except in tests.
func Limit(root string) (bytes int64, ok bool) {
	if given := debug.SetMemoryLimit(-1); given < math.MaxInt64 {
		return given, true
	}
	return ofGroup(root)
}

// ofGroup returns the smallest memory limit among the cgroup of this process and the cgroups above
// it.
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
		// Also read the groups above. In a container, the group of the process is often mounted as
		// the root of cgroups, so that the path of the group does not exist.
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

// unlimited is the least number of bytes that means "no limit": if a cgroup has no limit, version 1
// of cgroups reports a very large number as its limit.
const unlimited = 1 << 60

// share is the soft limit of the Go runtime, as a fraction of the container's limit. The remainder
// is for memory that the runtime does not count, and for bursts.
const share = 0.9

// Heed sets the soft memory limit of the Go runtime to a share of the container's limit, unless
// GOMEMLIMIT is set. Near the soft limit, the garbage collector runs more often. Without the soft
// limit, garbage could double the memory of the process.
func Heed(root string) {
	if debug.SetMemoryLimit(-1) < math.MaxInt64 {
		return
	}
	if bytes, ok := ofGroup(root); ok {
		debug.SetMemoryLimit(int64(share * float64(bytes)))
	}
}
