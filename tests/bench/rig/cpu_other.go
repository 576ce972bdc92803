//go:build !linux

package rig

import "time"

// ReadCPU is not implemented on this system.
func ReadCPU() CPU { return CPU{} }

// readMemory is not implemented on this system.
func readMemory() map[string]int64 { return nil }

// ResidentMemory is not implemented on this system.
func ResidentMemory(int) int64 { return 0 }

// Process is a running process.
type Process struct{ Used time.Duration }

// ReadProcesses is not implemented on this system.
func ReadProcesses() map[int]Process { return nil }
