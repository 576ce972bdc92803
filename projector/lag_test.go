package projector

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/projector/lag"
)

func (d *database) behind(t *testing.T, of ...int) []int {
	t.Helper()
	behind, err := lag.Behind(t.Context(), d.pool, of)
	if err != nil {
		t.Fatal(err)
	}
	return behind
}

// The lag is told by partition: the head of the log, how far it is folded,
// and what lies between.
func TestLags(t *testing.T) {
	d := newDatabase(t)
	ann := foldtest.User(2, 0)
	if diff := cmp.Diff([]lag.Lag{{Partition: 0}, {Partition: 1}, {Partition: 2}, {Partition: 3}}, d.lags(t)); diff != "" {
		t.Errorf("of an empty log (-want +got):\n%s", diff)
	}
	for seq := int64(1); seq <= 5; seq++ {
		d.append(t, foldtest.Deliver("c", seq, ann))
	}
	d.awaitVisible(t, 2)
	step(t, d.projector.partitions[2], 2)

	lags := d.lags(t)
	folded := d.position(t, 2)
	l := lags[2]
	if l.Folded != folded || !l.Folded.Before(l.Head) || l.Events != 3 || l.Age <= 0 {
		t.Errorf("with 2 of 5 folded, up to %v: %+v", folded, l)
	}
	for _, p := range []int{0, 1, 3} {
		if diff := cmp.Diff(lag.Lag{Partition: p}, lags[p]); diff != "" {
			t.Errorf("of a partition without events (-want +got):\n%s", diff)
		}
	}
	if bounded, err := lag.Measure(t.Context(), d.pool, []int{2}, 1); err != nil || bounded[0].Events != 1 {
		t.Errorf("counting up to 1 event: %+v, error %v", bounded, err)
	}

	d.fold(t)
	l = d.lags(t)[2]
	if l.Folded != l.Head || l.Events != 0 || l.Age != 0 {
		t.Errorf("with all folded: %+v", l)
	}
	if none, err := lag.Measure(t.Context(), d.pool, nil, 1); len(none) > 0 || err != nil {
		t.Errorf("of no partition: %v, error %v", none, err)
	}
}

// A partition is behind where something can be folded now.
func TestBehind(t *testing.T) {
	server := pgtest.NewServer(t) // a transaction of this test hides events
	d := openDatabase(t, server.NewDB(t, migrated))
	all := []int{0, 1, 2, 3}
	if behind := d.behind(t, all...); len(behind) > 0 {
		t.Errorf("in an empty log %v are behind", behind)
	}
	d.append(t, foldtest.Deliver("c", 1, foldtest.User(1, 0), foldtest.User(3, 0)))
	d.awaitVisible(t, 1)
	if diff := cmp.Diff([]int{1, 3}, d.behind(t, all...)); diff != "" {
		t.Errorf("behind (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{3}, d.behind(t, 0, 2, 3)); diff != "" {
		t.Errorf("behind of three (-want +got):\n%s", diff)
	}
	drain(t, d.projector.partitions[1])
	if diff := cmp.Diff([]int{3}, d.behind(t, all...)); diff != "" {
		t.Errorf("behind after partition 1 (-want +got):\n%s", diff)
	}
	drain(t, d.projector.partitions[3])

	older, err := d.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := older.Exec(t.Context(), `SELECT pg_current_xact_id()`); err != nil {
		t.Fatal(err)
	}
	d.append(t, foldtest.Deliver("c", 2, foldtest.User(1, 0)))
	if behind := d.behind(t, all...); len(behind) > 0 {
		t.Errorf("%v are behind, but what is there is hidden", behind)
	}
	if l := d.lags(t)[1]; l.Events != 1 || l.Head == (events.Position{}) {
		t.Errorf("what is hidden is a lag all the same: %+v", l)
	}
	if err := older.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.awaitVisible(t, 1)
	if diff := cmp.Diff([]int{1}, d.behind(t, all...)); diff != "" {
		t.Errorf("behind once it shows (-want +got):\n%s", diff)
	}
}
