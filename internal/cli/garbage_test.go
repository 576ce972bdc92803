package cli

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
)

func TestGrowthOfHeaps(t *testing.T) {
	for _, tt := range []struct {
		live uint64
		want int
	}{
		{0, mostGrowth},
		{4 << 20, mostGrowth},
		{16 << 20, 300},
		{30 << 20, defaultGrowth},
		{smallHeap / 2, defaultGrowth},
		{1 << 40, defaultGrowth},
	} {
		if got := growthOf(tt.live); got != tt.want {
			t.Errorf("a heap of %d bytes grows by %d %%, want %d", tt.live, got, tt.want)
		}
	}
}

func TestSmallHeapsAreCollectedRarely(t *testing.T) {
	t.Setenv("GOGC", "")
	debug.SetGCPercent(defaultGrowth)
	collectRarely()
	for growth() == defaultGrowth { // until the finalizer has run
		runtime.GC()
	}
}

func TestOperatorsSetTheGrowth(t *testing.T) {
	t.Setenv("GOGC", "200")
	before := growth()
	collectRarely()
	runtime.GC()
	if after := growth(); after != before {
		t.Errorf("the heap grows by %d %%, want %d", after, before)
	}
}

// growth returns by how many percent the heap grows.
func growth() int {
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(sample)
	return int(sample[0].Value.Uint64())
}
