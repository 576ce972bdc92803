package events_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
)

func TestPositionsOrderByTransactionFirst(t *testing.T) {
	ascending := []events.Position{{}, {0, 1}, {1, 0}, {1, 9}, {2, 3}, {10, 1}}
	for i, p := range ascending {
		for j, q := range ascending {
			if got := p.Before(q); got != (i < j) {
				t.Errorf("%v before %v: %v", p, q, got)
			}
		}
	}
	if got := (events.Position{TransactionID: 1234, Offset: 56}).String(); got != "1234/56" {
		t.Errorf("a position is shown as %s", got)
	}
}

// reader reads the log of one partition, batch by batch.
type reader struct {
	q        events.Querier
	position events.Position
}

func (r *reader) next(t *testing.T, limit, maxBytes int) events.Batch {
	t.Helper()
	batch, err := events.Read(t.Context(), r.q, 0, r.position, limit, maxBytes)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(batch.Records); n > 0 {
		r.position = batch.Records[n-1].Position
	}
	return batch
}

func TestReadByLimit(t *testing.T) {
	log, pool := newLog(t)
	ann := userIn(0, 0)
	mustAppend(t, log, delivered("1", ann), delivered("2", ann), delivered("3", ann))
	mustAppend(t, log, delivered("4", ann))
	mustAppend(t, log, delivered("other", userIn(1, 0)))
	readAll(t, pool, 0, events.Position{}) // until nothing is hidden

	r := reader{q: pool}
	for _, step := range []struct {
		limit int
		want  []string
		more  bool
	}{
		{2, []string{"1", "2"}, true},
		{1, []string{"3"}, true},
		{1, []string{"4"}, true}, // a full batch sets More
		{1, nil, false},
	} {
		batch := r.next(t, step.limit, 1<<20)
		if diff := cmp.Diff(step.want, ids(t, batch.Records)); diff != "" {
			t.Errorf("next %d (-want +got):\n%s", step.limit, diff)
		}
		if batch.More != step.more || batch.Hidden {
			t.Errorf("after %v: more %v, want %v; hidden %v, want false", step.want, batch.More, step.more, batch.Hidden)
		}
	}
}

func TestReadByBytes(t *testing.T) {
	log, pool := newLog(t)
	ann := userIn(0, 0)
	mustAppend(t, log, delivered("1", ann), delivered("2", ann), delivered("3", ann))
	size := len(readAll(t, pool, 0, events.Position{})[0].Payload) // all are of one size
	for _, tc := range []struct {
		maxBytes int
		want     []string
		more     bool
	}{
		{1, []string{"1"}, true}, // at least one
		{size, []string{"1"}, true},
		{size + 1, []string{"1", "2"}, true},
		{2 * size, []string{"1", "2"}, true},
		{3*size + 1, []string{"1", "2", "3"}, false},
	} {
		r := reader{q: pool}
		batch := r.next(t, 10, tc.maxBytes)
		if diff := cmp.Diff(tc.want, ids(t, batch.Records)); diff != "" {
			t.Errorf("next %d bytes (-want +got):\n%s", tc.maxBytes, diff)
		}
		if batch.More != tc.more {
			t.Errorf("more after %d bytes: %v, want %v", tc.maxBytes, batch.More, tc.more)
		}
	}
}

// Records are ordered by transaction, not by offset.
func TestReadInTheOrderOfTransactions(t *testing.T) {
	_, pool := newLog(t)
	older, younger := begin(t, pool), begin(t, pool)
	publish(t, older, delivered("before", userIn(1, 0))) // takes its transaction id
	publish(t, younger, delivered("3", userIn(0, 0)))
	publish(t, older, delivered("1", userIn(0, 0)), delivered("2", userIn(0, 0)))
	end(t, younger.Commit)
	end(t, older.Commit)
	records := readAll(t, pool, 0, events.Position{})
	if diff := cmp.Diff([]string{"1", "2", "3"}, ids(t, records)); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}
	if first, last := records[0].Position, records[2].Position; first.Offset < last.Offset {
		t.Fatalf("offsets %d and %d prove nothing", first.Offset, last.Offset)
	}
}

// begin begins a transaction that is rolled back unless the test ends it.
func begin(t *testing.T, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	return tx
}

func publish(t *testing.T, tx pgx.Tx, evs ...events.Event) {
	t.Helper()
	if _, err := events.Publish(t.Context(), tx, evs...); err != nil {
		t.Fatal(err)
	}
}

func end(t *testing.T, how func(context.Context) error) {
	t.Helper()
	if err := how(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// While an older transaction is open, which might still insert before them,
// events of later transactions are not read, and Hidden is set. They are read
// as soon as it has committed or rolled back, in whatever database of the
// server it runs.
func TestReadHidesWhatMightBeOvertaken(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(pgx.Tx) func(context.Context) error
	}{
		{"commit", func(tx pgx.Tx) func(context.Context) error { return tx.Commit }},
		{"rollback", func(tx pgx.Tx) func(context.Context) error { return tx.Rollback }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			server := pgtest.NewServer(t)
			log, pool := openLog(t, server.NewDB(t, migrated))
			elsewhere := newPool(t, server.NewDB(t, pgtest.Template{}))
			ann := userIn(0, 0)
			mustAppend(t, log, delivered("1", ann))
			readAll(t, pool, 0, events.Position{})

			older := begin(t, elsewhere)
			if _, err := older.Exec(t.Context(), `SELECT pg_current_xact_id()`); err != nil {
				t.Fatal(err)
			}
			mustAppend(t, log, delivered("2", ann))

			r := reader{q: pool}
			batch := r.next(t, 10, 1<<20)
			if diff := cmp.Diff([]string{"1"}, ids(t, batch.Records)); diff != "" {
				t.Errorf("read (-want +got):\n%s", diff)
			}
			if !batch.Hidden || batch.More {
				t.Errorf("hidden %v, want true; more %v, want false", batch.Hidden, batch.More)
			}
			if batch := r.next(t, 10, 1<<20); len(batch.Records) > 0 || !batch.Hidden || batch.More {
				t.Errorf("read again: %d records, hidden %v, more %v", len(batch.Records), batch.Hidden, batch.More)
			}
			end(t, tc.end(older))
			if diff := cmp.Diff([]string{"2"}, ids(t, readAll(t, pool, 0, r.position))); diff != "" {
				t.Errorf("read once the older has ended (-want +got):\n%s", diff)
			}
		})
	}
}

// Open transactions that only read hide nothing.
func TestReadIsNotHeldUpByReaders(t *testing.T) {
	server := pgtest.NewServer(t)
	log, pool := openLog(t, server.NewDB(t, migrated))
	older := begin(t, pool)
	if _, err := older.Exec(t.Context(), `SELECT FROM badged.settings`); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, log, delivered("1", userIn(0, 0)))
	if diff := cmp.Diff([]string{"1"}, ids(t, readAll(t, pool, 0, events.Position{}))); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}
}

// writer is one of several that append to a partition, each in one transaction
// at a time.
type writer struct {
	tx        pgx.Tx
	published []string
}

// However transactions interleave and end, a reader that reads batch by batch
// gets every committed event once, and those of one transaction together and
// in order.
func TestReadSkipsNothing(t *testing.T) {
	server := pgtest.NewServer(t)
	_, pool := openLog(t, server.NewDB(t, migrated))
	r := reader{q: pool}
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		writers := make([]writer, 4)
		committed := map[string][]string{} // the events of a transaction, by its first
		var got []string
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			w := &writers[rapid.IntRange(0, len(writers)-1).Draw(rt, "writer")]
			switch action := rapid.SampledFrom([]string{"publish", "publish", "commit", "roll back", "read"}).Draw(rt, "action"); {
			case action == "read":
				limit := rapid.IntRange(1, 4).Draw(rt, "limit")
				got = append(got, ids(t, r.next(t, limit, 1<<20).Records)...)
			case action == "publish":
				if w.tx == nil {
					w.tx = begin(t, pool)
				}
				n++
				id := fmt.Sprint("e", n)
				publish(t, w.tx, delivered(id, userIn(0, 0)))
				w.published = append(w.published, id)
			case w.tx == nil: // nothing to end
			default:
				w.end(t, action == "commit", committed)
			}
		}
		for i := range writers {
			if writers[i].tx != nil {
				writers[i].end(t, true, committed)
			}
		}
		rest := readAll(t, pool, 0, r.position)
		got = append(got, ids(t, rest)...)
		if len(rest) > 0 {
			r.position = rest[len(rest)-1].Position
		}
		compareTransactions(rt, committed, got)
	})
}

func (w *writer) end(t *testing.T, commit bool, committed map[string][]string) {
	t.Helper()
	if commit {
		end(t, w.tx.Commit)
		committed[w.published[0]] = w.published
	} else {
		end(t, w.tx.Rollback)
	}
	*w = writer{}
}

// compareTransactions checks that got has the transactions in committed, each
// once and whole.
func compareTransactions(t *rapid.T, committed map[string][]string, got []string) {
	left := len(committed)
	for rest := got; len(rest) > 0; left-- {
		want, ok := committed[rest[0]]
		if !ok || len(rest) < len(want) || !slices.Equal(want, rest[:len(want)]) {
			t.Fatalf("read %v, but committed were %v", got, committed)
		}
		delete(committed, rest[0])
		rest = rest[len(want):]
	}
	if left != 0 {
		t.Fatalf("read %v, and never %v", got, committed)
	}
}

// As above, with concurrent writers that use Append.
func TestReadSkipsNothingUnderLoad(t *testing.T) {
	log, pool := newLog(t)
	const writers, appends = 4, 40
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for i := range appends {
				if _, err := log.Append(t.Context(), delivered(fmt.Sprintf("w%d-%03d", w, i), userIn(0, 0))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() {
		writing.Wait()
		close(done)
	}()
	r := reader{q: pool}
	var got []string
	for writing := true; writing; {
		select {
		case <-done:
			writing = false
		default:
		}
		got = append(got, ids(t, r.next(t, 3, 1<<20).Records)...)
	}
	got = append(got, ids(t, readAll(t, pool, 0, r.position))...)

	next := map[string]int{}
	for _, id := range got {
		w, i := id[:2], id[3:]
		if want := fmt.Sprintf("%03d", next[w]); i != want {
			t.Fatalf("after %s-%03d came %s", w, next[w]-1, id)
		}
		next[w]++
	}
	if len(got) != writers*appends {
		t.Errorf("read %d events of %d", len(got), writers*appends)
	}
}

func TestPositionOfAnUnknownGroup(t *testing.T) {
	_, pool := newLog(t)
	p, err := events.PositionOf(t.Context(), pool, 0, "unknown")
	if err != nil || p != (events.Position{}) {
		t.Errorf("position %v, error %v", p, err)
	}
}
