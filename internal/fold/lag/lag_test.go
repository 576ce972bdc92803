package lag_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/fold/lag"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

// behind returns which of some partitions are behind.
func behind(t *testing.T, d *projectortest.Database, of ...int) []int {
	t.Helper()
	behind, err := lag.Behind(t.Context(), d.Pool, of)
	if err != nil {
		t.Fatal(err)
	}
	return behind
}

// lags returns the lag of every partition.
func lags(t *testing.T, d *projectortest.Database) []lag.Lag {
	t.Helper()
	lags, err := lag.Measure(t.Context(), d.Pool, []int{0, 1, 2, 3}, 1000)
	if err != nil {
		t.Fatal(err)
	}
	return lags
}

// The lag is told by partition: the head of the log, how far it is folded,
// and what lies between.
func TestLags(t *testing.T) {
	d := projectortest.New(t)
	ann := foldtest.User(2, 0)
	if diff := cmp.Diff([]lag.Lag{{Partition: 0}, {Partition: 1}, {Partition: 2}, {Partition: 3}}, lags(t, d)); diff != "" {
		t.Errorf("of an empty log (-want +got):\n%s", diff)
	}
	for seq := int64(1); seq <= 5; seq++ {
		d.Append(t, foldtest.Deliver("c", seq, ann))
	}
	// As if two were folded.
	d.SetPosition(t, 2, d.Records(t, 2)[1].Position)

	all := lags(t, d)
	folded := d.Position(t, 2)
	l := all[2]
	if l.Folded != folded || !l.Folded.Before(l.Head) || l.Events != 3 || l.Age <= 0 {
		t.Errorf("with 2 of 5 folded, up to %v: %+v", folded, l)
	}
	for _, p := range []int{0, 1, 3} {
		if diff := cmp.Diff(lag.Lag{Partition: p}, all[p]); diff != "" {
			t.Errorf("of a partition without events (-want +got):\n%s", diff)
		}
	}
	if bounded, err := lag.Measure(t.Context(), d.Pool, []int{2}, 1); err != nil || bounded[0].Events != 1 {
		t.Errorf("counting up to 1 event: %+v, error %v", bounded, err)
	}

	d.SetPosition(t, 2, l.Head)
	l = lags(t, d)[2]
	if l.Folded != l.Head || l.Events != 0 || l.Age != 0 {
		t.Errorf("with all folded: %+v", l)
	}
	if none, err := lag.Measure(t.Context(), d.Pool, nil, 1); len(none) > 0 || err != nil {
		t.Errorf("of no partition: %v, error %v", none, err)
	}
}

// A partition is behind where something can be folded now.
func TestBehind(t *testing.T) {
	server := pgtest.Borrow(t) // no other tests' transactions
	d := projectortest.Open(t, server.NewDB(t, projectortest.Migrated()))
	all := []int{0, 1, 2, 3}
	// fold moves the position of a partition to its end.
	fold := func(partition int) {
		t.Helper()
		records := d.Records(t, partition)
		d.SetPosition(t, partition, records[len(records)-1].Position)
	}
	if late := behind(t, d, all...); len(late) > 0 {
		t.Errorf("in an empty log %v are behind", late)
	}
	d.Append(t, foldtest.Deliver("c", 1, foldtest.User(1, 0), foldtest.User(3, 0)))
	d.Records(t, 1)
	if diff := cmp.Diff([]int{1, 3}, behind(t, d, all...)); diff != "" {
		t.Errorf("behind (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{3}, behind(t, d, 0, 2, 3)); diff != "" {
		t.Errorf("behind of three (-want +got):\n%s", diff)
	}
	fold(1)
	if diff := cmp.Diff([]int{3}, behind(t, d, all...)); diff != "" {
		t.Errorf("behind after partition 1 (-want +got):\n%s", diff)
	}
	fold(3)

	older := d.Begin(t)
	var id int64
	if err := older.QueryRow(t.Context(), `SELECT pg_current_xact_id()::text::bigint`).Scan(&id); err != nil {
		t.Fatal(err)
	}
	// The position passes the open transaction.
	d.Append(t, foldtest.Deliver("c", 2, foldtest.User(1, 0)))
	if diff := cmp.Diff([]int{1}, behind(t, d, all...)); diff != "" {
		t.Errorf("behind while a transaction is open (-want +got):\n%s", diff)
	}
	d.Exec(t, `UPDATE badged.events_p01_offsets SET (last_processed_transaction_id, offset_acked, pending) =
    (SELECT transaction_id, "offset", ARRAY[$1::bigint::text::xid8] FROM badged.events_p01 ORDER BY 1 DESC, 2 DESC LIMIT 1)`, id)
	if late := behind(t, d, all...); len(late) > 0 {
		t.Errorf("%v are behind, but the open transaction has appended nothing", late)
	}
	if _, err := events.Publish(t.Context(), older, foldtest.Deliver("c", 3, foldtest.User(1, 0))); err != nil {
		t.Fatal(err)
	}
	if err := older.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{1}, behind(t, d, all...)); diff != "" {
		t.Errorf("behind after a late commit (-want +got):\n%s", diff)
	}
	if l := lags(t, d)[1]; l.Events != 1 {
		t.Errorf("the late event is no lag: %+v", l)
	}
}
