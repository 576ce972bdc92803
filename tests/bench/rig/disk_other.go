//go:build !linux

package rig

import "os"

// SyncCall is the system call of syncFile.
const SyncCall = "fsync"

func syncFile(f *os.File) error { return f.Sync() }

// filesystemOf is not implemented on this system.
func filesystemOf(string) (says string, inMemory bool, err error) {
	return "a filesystem of unknown type", false, nil
}
