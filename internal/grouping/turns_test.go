package grouping_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/grouping"
)

// turnsOf returns groups of several databases that take turns, one at a time, the log of
// each, and what appends n events with an id to one of them.
func turnsOf(t *testing.T, databases int) (logs []*heldLog, publish func(database int, id string, n int)) {
	t.Helper()
	turns := grouping.NewTurns(1)
	var groups []*grouping.Group
	for range databases {
		l := &heldLog{}
		logs = append(logs, l)
		groups = append(groups, grouping.NewInTurns(events.Attach(nil, partitions), l.append, 1000, turns))
	}
	return logs, func(database int, id string, n int) {
		evs := make([]events.Event, n)
		for i := range evs {
			evs[i] = delivered(fmt.Sprint(id, i), userIn(i%partitions, 0))
		}
		go turns.Call(func() {
			if _, err := groups[database].Append(t.Context(), evs...); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
	}
}

// While several calls are under way, databases take turns, and what comes meanwhile shares
// the next transaction, in the order in which it came.
func TestGroupsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs, publish := turnsOf(t, 2)
		want := func(database int, ids ...string) {
			t.Helper()
			if diff := cmp.Diff(ids, logs[database].ids()); diff != "" {
				t.Errorf("appends that run on database %d (-want +got):\n%s", database, diff)
			}
		}
		publish(1, "alone", 1) // takes no turn
		publish(0, "a", 1)
		publish(1, "b", 1) // waits for the first on its database
		publish(0, "c", 1) // waits for a
		want(0, "a0")
		want(1, "alone0")
		logs[1].release(0)
		want(1) // a has the turn
		publish(1, "d", 1)
		publish(1, "large", 1001) // waits for nobody
		if n := len(logs[1].running); n != 1 || len(logs[1].running[0].evs) != 1001 {
			t.Errorf("a large append does not run by itself: %d run", n)
		}
		logs[1].release(0)
		logs[0].release(0)
		want(0)
		want(1, "b0 d0")
		publish(0, "e", 1)
		logs[1].release(0)
		want(0, "c0 e0")
		logs[0].release(0)
	})
}

// What waits for a turn shares no more than a company takes.
func TestGroupsTakeTurnsWithLargeCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs, publish := turnsOf(t, 2)
		publish(1, "alone", 1)
		publish(0, "turn", 1)
		for range 6 {
			publish(1, "large", 900)
		}
		publish(1, "small", 100)
		logs[1].release(0)
		logs[0].release(0)
		var sizes []int
		for len(logs[1].running) > 0 {
			sizes = append(sizes, len(logs[1].running[0].evs))
			logs[1].release(0)
		}
		if diff := cmp.Diff([]int{5 * 900, 900 + 100}, sizes); diff != "" {
			t.Errorf("sizes of transactions (-want +got):\n%s", diff)
		}
	})
}

// A call by itself has nothing to share: its parts do not wait for each other.
func TestPartsOfOneCallTakeNoTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := grouping.NewTurns(1)
		logs := []*heldLog{{}, {}, {}}
		go turns.Call(func() {
			var parts sync.WaitGroup
			for _, l := range logs {
				g := grouping.NewInTurns(events.Attach(nil, partitions), l.append, 1000, turns)
				parts.Go(func() {
					if _, err := g.Append(t.Context(), delivered("part", userIn(0, 0))); err != nil {
						t.Error(err)
					}
				})
			}
			parts.Wait()
		})
		synctest.Wait()
		for i, l := range logs {
			if len(l.running) != 1 {
				t.Errorf("on database %d, %d transactions run", i, len(l.running))
			}
		}
		for _, l := range logs {
			l.release(0)
		}
	})
}

// A transaction that hangs loses its turn.
func TestGroupsTakeTurnsWithADatabaseThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs, publish := turnsOf(t, 3)
		publish(2, "alone", 1)
		publish(0, "hangs", 1)
		publish(1, "next", 1)
		if logs[1].count() != 0 {
			t.Error("two databases have the turn")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if logs[1].count() != 1 {
			t.Error("a transaction waits for one that hangs")
		}
		for _, l := range logs {
			l.release(0)
		}
	})
}
