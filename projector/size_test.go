package projector

import (
	"testing"
	"time"

	"github.com/badged/badged/internal/fold/logread"
)

// Events that name thousands of users can be too many for one batch, however few
// they are. A batch that times out must not come again in the same size.
func TestSizeOfTheNextBatch(t *testing.T) {
	p := &partition{projector: &Projector{cfg: Config{MaxBatch: 400}}, size: logread.Size{Events: 200}}
	for i, step := range []struct {
		do   func()
		want int
	}{
		{func() { p.adapt(200, fastBatch/2) }, 400},
		{func() { p.adapt(400, fastBatch/2) }, 400},
		{func() { p.adapt(400, 2*slowBatch) }, 200},
		{func() { p.adapt(100, fastBatch/2) }, 200}, // it was not full
		{func() { p.adapt(200, (fastBatch+slowBatch)/2) }, 200},
		{func() { p.adapt(200, time.Minute) }, 100},
		{func() { p.adapt(100, time.Minute) }, 50},
		{func() { p.adapt(50, time.Minute) }, 50},
		{func() { p.shrink(1) }, 25},
		{func() { p.adapt(25, time.Minute) }, 25},
		{func() { p.adapt(25, fastBatch/2) }, 50},
		{func() {
			for range 10 {
				p.shrink(1)
			}
		}, 1},
	} {
		if step.do(); p.size.Events != step.want {
			t.Fatalf("after step %d the next batch may have %d events, want %d", i, p.size.Events, step.want)
		}
	}
}
