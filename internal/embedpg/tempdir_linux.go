package embedpg

import "syscall"

// memoryDir is a directory of files in memory, or empty if there is none with
// plenty of room: containers have one that is far too small by default.
func memoryDir() string {
	const (
		dir   = "/dev/shm"
		tmpfs = 0x01021994
		room  = 2 << 30
	)
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil || fs.Type != tmpfs || fs.Bavail*uint64(fs.Bsize) < room { //nolint:gosec // a size
		return ""
	}
	return dir
}
