//go:build !linux

package rig

import "os"

const syncCall = "fsync"

func syncFile(f *os.File) error { return f.Sync() }
