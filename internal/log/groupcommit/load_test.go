package groupcommit_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/log/groupcommit"
)

// publisher returns a function that publishes calls of these numbers of events, for all partitions,
// without waiting for the results.
func publisher(t *testing.T, g *groupcommit.Group) func(calls ...int) {
	return func(calls ...int) {
		for _, n := range calls {
			evs := make([]events.Event, n)
			for i := range evs {
				evs[i] = delivered(fmt.Sprint(n), userIn(i%partitions, 0))
			}
			go func() {
				if _, err := g.Append(t.Context(), evs...); err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
		}
	}
}

// Calls of at most the group's small size wait for the running append and share the next one.
// Larger calls are appended immediately.
func TestGroupOfLargerCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l heldLog
		publish := publisher(t, groupcommit.New(events.Attach(nil, partitions), l.append, 1000, 1))
		want := func(sizes ...int) {
			t.Helper()
			if diff := cmp.Diff(sizes, l.sizes()); diff != "" {
				t.Errorf("events of the appends that run (-want +got):\n%s", diff)
			}
		}
		publish(500, 1000, 300)
		want(500)
		publish(1001)
		want(500, 1001)
		l.release(0)
		want(1001, 1300)
		l.release(0)
		l.release(0)
	})
}

// sizes returns how many events each append that runs has.
func (l *heldLog) sizes() (n []int) {
	for _, a := range l.running {
		n = append(n, len(a.evs))
	}
	return n
}

// If calls of many events overlap repeatedly, the transactions do not fold. If only two such calls
// overlap, or only single events, the transactions fold. The clock is the fake clock of synctest.
func TestGroupUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var folding, appending heldLog
		g := groupcommit.New(events.Attach(nil, partitions), appending.append, 100, 1).FoldBy(folding.append)
		publish := publisher(t, g)
		runs := func(folded, appended []int) {
			t.Helper()
			if diff := cmp.Diff([][]int{folded, appended}, [][]int{folding.sizes(), appending.sizes()}); diff != "" {
				t.Errorf("events of the appends that fold, and of those that do not (-want +got):\n%s", diff)
			}
			for len(folding.running) > 0 {
				folding.release(0)
			}
			for len(appending.running) > 0 {
				appending.release(0)
			}
		}
		for range 5 { // each meets another
			publish(1, 1, 1)
			folding.release(0)
			runs([]int{2}, nil)
		}
		publish(10, 10)
		folding.release(0)
		publish(10)
		folding.release(0)
		runs(nil, []int{10})
		publish(1)
		runs(nil, []int{1})
		time.Sleep(50 * time.Millisecond)
		publish(1)
		runs([]int{1}, nil)

		publish(10, 10)
		time.Sleep(50 * time.Millisecond)
		publish(10)
		folding.release(0)
		runs([]int{20}, nil)

		time.Sleep(50 * time.Millisecond)
		publish(200, 200, 200) // at once
		runs([]int{200, 200}, []int{200})

		time.Sleep(50 * time.Millisecond)
		for range 3 { // none meets another
			publish(10)
			runs([]int{10}, nil)
		}
	})
}
