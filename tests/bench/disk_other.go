//go:build !linux

package main

import "os"

// syncCall is what syncFile does.
const syncCall = "fsync"

func syncFile(f *os.File) error { return f.Sync() }

// filesystemOf cannot tell here.
func filesystemOf(string) (says string, inMemory bool, err error) {
	return "a filesystem of unknown type", false, nil
}

// freeBytes knows nothing here, and takes the disk for a small one.
func freeBytes(string) (int64, error) { return 10 << 30, nil }
