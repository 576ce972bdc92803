//go:build !linux

package main

// readCPU is not implemented on this system.
func readCPU() cpu { return cpu{} }

// readMemory is not implemented on this system.
func readMemory() map[string]int64 { return nil }

// residentMemory is not implemented on this system.
func residentMemory(int) int64 { return 0 }
