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

// FreeBytes is not implemented on this system and assumes a small disk.
func FreeBytes(string) (int64, error) { return 10 << 30, nil }
