package rebuild

import (
	"testing"
	"time"

	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
)

// BenchmarkRebuild rebuilds the tables from n events, and compares the time with the time of
// publishing and folding these events.
func BenchmarkRebuild(b *testing.B) {
	const n, batch = 200_000, 5000
	d := projectortest.New(b)
	start := time.Now()
	evs := foldtest.Traffic(n, 0)
	for i := 0; i < n; i += batch {
		d.Append(b, evs[i:i+batch]...)
		d.Fold(b)
	}
	before := time.Since(start)
	for b.Loop() {
		rebuild(b, d, nil)
	}
	each := b.Elapsed() / time.Duration(b.N)
	b.ReportMetric(n/each.Seconds(), "events/s")
	b.ReportMetric(each.Seconds()/before.Seconds(), "of-publishing")
}
