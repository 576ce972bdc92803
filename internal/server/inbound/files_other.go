//go:build !unix

package inbound

// Files returns how many files this process may have open at a time. On this system it returns
// an assumed limit.
func Files() int { return unknownFiles }
