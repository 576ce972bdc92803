package cli

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// smallHeap is the size in bytes that a heap reaches before it is collected. By
	// default Go collects whenever the heap has doubled: a server that holds little
	// does so several times a second, for an eighth of its processor time.
	smallHeap = 64 << 20
	// defaultGrowth is Go's default growth in percent, which larger heaps keep.
	defaultGrowth = 100
	// mostGrowth keeps the least heap that Go collects, 4 MiB times the growth, below
	// smallHeap.
	mostGrowth = 1500
)

// collectRarely adapts the growth of the heap after each collection, for as long as
// the process runs. It leaves a growth that the operator has set.
func collectRarely() {
	if os.Getenv("GOGC") != "" {
		return
	}
	growth := defaultGrowth
	var collected func(*sentinel)
	collected = func(s *sentinel) {
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(live)
		if g := growthOf(live[0].Value.Uint64()); g != growth {
			growth = g
			debug.SetGCPercent(g)
		}
		runtime.SetFinalizer(s, collected)
	}
	runtime.SetFinalizer(&sentinel{}, collected)
}

// sentinel is an object to which nothing refers, so each collection finalizes it.
type sentinel struct{ _ *sentinel }

// growthOf returns the growth in percent after which a heap with so many live bytes
// is collected. It is rounded, since setting it stops all goroutines for a moment.
func growthOf(live uint64) int {
	const step = 50
	if live >= smallHeap/2 {
		return defaultGrowth
	}
	growth := min(100*(smallHeap-live)/max(live, 1), mostGrowth)
	return int(growth) / step * step
}
