//go:build !unix

package main

import "math"

// openFilesLimit knows of none here.
func openFilesLimit() (uint64, error) { return math.MaxUint64, nil }
