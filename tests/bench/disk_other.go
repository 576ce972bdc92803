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
