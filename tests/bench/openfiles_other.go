//go:build !unix

package main

import "math"

// openFilesLimit is not implemented on this system and returns no limit.
func openFilesLimit() (uint64, error) { return math.MaxUint64, nil }
