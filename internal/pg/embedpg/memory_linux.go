package embedpg

import "syscall"

// memoryDir returns a directory whose files are in memory. It returns "" if there is no such
// directory with enough room: in most containers, /dev/shm is far too small by default.
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
