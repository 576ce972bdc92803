package rig

import (
	"os"
	"syscall"
)

// syncCall is the system call of syncFile, the same that Postgres uses on this
// system.
const syncCall = "fdatasync"

func syncFile(f *os.File) error { return syscall.Fdatasync(int(f.Fd())) }
