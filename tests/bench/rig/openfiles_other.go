//go:build !unix

package rig

import "math"

// OpenFilesLimit is not implemented on this system and returns no limit.
func OpenFilesLimit() (uint64, error) { return math.MaxUint64, nil }
