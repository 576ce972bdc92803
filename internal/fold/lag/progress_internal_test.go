package lag

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/badged/badged/events"
)

// A partition counts as not folded once it has had no projector, or events without progress,
// for some time; a look that failed forgets nothing.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewProgress(nil, nil)
		held := []int{0, 1, 2}
		look := func(owned []int, waiting map[int]Waiting, measured bool) string {
			time.Sleep(progressInterval)
			p.note(time.Now(), held, owned, waiting, measured)
			if err := p.Check(t.Context()); err != nil {
				return err.Error()
			}
			return ""
		}
		at := func(id int64) Waiting { return Waiting{Folded: events.Position{TransactionID: id}, Age: time.Second} }
		for range 10 {
			if said := look(held, nil, true); said != "" {
				t.Fatalf("when all is folded: %s", said)
			}
		}
		said := ""
		for n := 1; n < 5; n++ {
			said = look([]int{1, 2}, map[int]Waiting{2: at(int64(n))}, true)
		}
		if !strings.Contains(said, "no projector folds partitions 0:") {
			t.Errorf("without a projector of partition 0: %q", said)
		}
		for n := range 10 {
			said = look(held, map[int]Waiting{1: at(int64(n)), 2: at(7)}, n%3 > 0)
		}
		if said != "events wait and are not folded in partitions 2: events are stored, and badges do not change" {
			t.Errorf("while partition 2 stays: %q", said)
		}
	})
}
