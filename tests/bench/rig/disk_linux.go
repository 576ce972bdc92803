package rig

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// SyncCall is the system call of syncFile, the same that Postgres uses on this
// system.
const SyncCall = "fdatasync"

func syncFile(f *os.File) error { return syscall.Fdatasync(int(f.Fd())) }

// filesystemOf returns the file system of dir, and whether it is in memory.
func filesystemOf(dir string) (says string, inMemory bool, err error) {
	const tmpfs, ramfs = 0x01021994, 0x858458f6
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return "", false, fmt.Errorf("statfs: %w", err)
	}
	magic := uint32(fs.Type) //nolint:gosec // its size varies, the number fits
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return "", false, err
	}
	says = mountOf(dir, content("/proc/self/mountinfo"))
	if says == "" {
		says = fmt.Sprintf("filesystem %#x", magic)
	}
	return says, magic == tmpfs || magic == ramfs, nil
}

// mountOf returns type and device of the mount that path is in, as mountinfo
// (see proc(5)) has them.
func mountOf(path, mountinfo string) string {
	var says, at string
	for line := range strings.Lines(mountinfo) {
		before, after, _ := strings.Cut(line, " - ")
		mount, super := strings.Fields(before), strings.Fields(after)
		if len(mount) < 5 || len(super) < 2 {
			continue
		}
		point := mount[4]
		within := path == point || strings.HasPrefix(path, strings.TrimSuffix(point, "/")+"/")
		if within && len(point) >= len(at) { // a later mount at the same point hides the earlier
			says, at = super[0]+" on "+super[1], point
		}
	}
	return says
}
