package logread

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/schematest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m).Run()) }

var migrated = schematest.Migrated(2)

// database is a migrated database. Its events are names.
type database struct{ *pgxpool.Pool }

func newDatabase(t *testing.T) database {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(pgtest.NewDB(t, migrated))
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 10 // several transactions are open at the same time
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return database{pool}
}

// transaction is one that stays open until it is committed or the test ends.
type transaction struct {
	pgx.Tx

	id int64
}

func (d database) begin(t *testing.T, names ...string) transaction {
	t.Helper()
	tx, err := d.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }) // does nothing after Commit
	opened := transaction{Tx: tx}
	if err := tx.QueryRow(t.Context(), `SELECT pg_current_xact_id()::text::bigint`).Scan(&opened.id); err != nil {
		t.Fatal(err)
	}
	opened.append(t, names...)
	return opened
}

func (tx transaction) append(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		tx.exec(t, `INSERT INTO badged.events_p00 (transaction_id, uuid, payload)
VALUES (pg_current_xact_id(), gen_random_uuid(), convert_to(to_json($1::text)::text, 'UTF8'))`, name)
	}
}

func (tx transaction) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	pgtest.Exec(t, tx, sql, args...)
}

func (tx transaction) commit(t *testing.T) {
	t.Helper()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// append appends events in one transaction.
func (d database) append(t *testing.T, names ...string) {
	t.Helper()
	d.begin(t, names...).commit(t)
}

// reader folds partition 0 as the projector does.
type reader struct {
	database

	watch  Watch
	cursor Cursor
	size   Size
	folded []string
}

func (d database) newReader() *reader {
	return &reader{database: d, size: Size{Events: 100, Bytes: 1 << 20}}
}

// next reads a page, and returns it with the names of its events.
func (r *reader) next(t *testing.T) (Page, []string) {
	t.Helper()
	page, err := Next(t.Context(), r, 0, r.cursor, &r.watch, &r.size)
	if err != nil {
		t.Fatal(err)
	}
	return page, namesOf(t, page.Records)
}

// fold reads a page, and commits it as a batch does.
func (r *reader) fold(t *testing.T) (page Page, names []string) {
	t.Helper()
	page, names = r.next(t)
	if len(page.Late) > 0 {
		var ids, offsets []int64
		for _, p := range page.Late {
			ids, offsets = append(ids, p.TransactionID), append(offsets, p.Offset)
		}
		pgtest.Exec(t, r, `SELECT badged.move_late(0, $1, $2, $3, $4)`, ids, offsets, r.cursor.TransactionID, r.cursor.Offset)
	}
	r.cursor, r.folded = page.To, append(r.folded, names...)
	return page, names
}

// foldAll folds until there is nothing more to read.
func (r *reader) foldAll(t *testing.T) {
	t.Helper()
	for {
		page, names := r.fold(t)
		if page.Waits {
			t.Fatal("a reader without patience waits")
		}
		if !page.More && len(names) == 0 {
			return
		}
	}
}

// replayed returns what a replay reads, that many events at a time.
func (r *reader) replayed(t *testing.T, limit int) (names []string) {
	t.Helper()
	for after := (events.Position{}); ; {
		records, err := Folded(t.Context(), r, 0, after, r.cursor, &Size{Events: limit, Bytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, namesOf(t, records)...)
		if len(records) < limit {
			return names
		}
		after = records[len(records)-1].Position
	}
}

func namesOf(t *testing.T, records []events.Record) []string {
	t.Helper()
	names := make([]string, len(records))
	for i := range records {
		if err := json.Unmarshal(records[i].Payload, &names[i]); err != nil {
			t.Fatal(err)
		}
	}
	return names
}

func wantNames(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// wantPending checks whether a transaction is pending. The server's own
// transactions may be as well.
func wantPending(t *testing.T, c Cursor, tx transaction, want bool) {
	t.Helper()
	if got := slices.Contains(c.Pending, tx.id); got != want {
		t.Errorf("transaction %d is pending: %v, want %v; pending are %v", tx.id, got, want, c.Pending)
	}
}

// A page goes past open transactions. Those that have ended come first in the
// next one, and leave the list, also if they appended nothing or were rolled
// back.
func TestNextGoesPastOpenTransactions(t *testing.T) {
	d := newDatabase(t)
	r := d.newReader()
	open, idle, undone := d.begin(t, "late 1", "late 2"), d.begin(t), d.begin(t, "undone")
	d.append(t, "one", "two")
	after := d.begin(t, "not passed")
	_, names := r.fold(t)
	wantNames(t, names, "one", "two")
	for _, tx := range []transaction{open, idle, undone} {
		wantPending(t, r.cursor, tx, true)
	}
	wantPending(t, r.cursor, after, false)

	d.append(t, "three") // passes the last one
	_, names = r.fold(t)
	wantNames(t, names, "three")
	for _, tx := range []transaction{open, idle, undone, after} {
		wantPending(t, r.cursor, tx, true)
	}

	open.commit(t)
	idle.commit(t)
	if err := undone.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.append(t, "four")
	before := r.cursor
	page, names := r.fold(t)
	wantNames(t, names, "late 1", "late 2", "four")
	for i, want := range []events.Position{
		{TransactionID: before.TransactionID, Offset: before.Offset + 1},
		{TransactionID: before.TransactionID, Offset: before.Offset + 2},
		page.To.Position,
	} {
		if got := page.Records[i].Position; got != want {
			t.Errorf("%q is at %v, want %v", names[i], got, want)
		}
	}
	for _, tx := range []transaction{open, idle, undone} {
		wantPending(t, r.cursor, tx, false)
	}
	wantPending(t, r.cursor, after, true)

	after.commit(t)
	_, names = r.fold(t)
	wantNames(t, names, "not passed")
	wantPending(t, r.cursor, after, false)
	wantNames(t, r.replayed(t, 2), r.folded...)
}

// An event with a transaction id that is not assigned yet is not read: behind its
// place, no later event would be.
func TestNextLeavesUnassignedIDs(t *testing.T) {
	d := newDatabase(t)
	r := d.newReader()
	d.append(t, "one")
	tx := d.begin(t, "forged")
	tx.exec(t, `UPDATE badged.events_p00 SET transaction_id = '99999999999' WHERE transaction_id = pg_current_xact_id()`)
	tx.commit(t)
	_, names := r.fold(t)
	wantNames(t, names, "one")
	d.append(t, "two")
	_, names = r.fold(t)
	wantNames(t, names, "two")
}

// Wherever limits cut pages, late transactions come in the order of their ids,
// each event once, and a replay reads the same.
func TestNextCutsLateEvents(t *testing.T) {
	for _, tc := range []struct{ limit, maxBytes int }{
		{1, 1 << 20}, {2, 1 << 20}, {3, 1 << 20}, {4, 1 << 20}, {100, 1 << 20}, {100, 1}, {100, 10}, {2, 10},
	} {
		t.Run(fmt.Sprintf("limit %d, bytes %d", tc.limit, tc.maxBytes), func(t *testing.T) {
			d := newDatabase(t)
			first, second, third := d.begin(t, "a1", "a2"), d.begin(t, "b1", "b2", "b3"), d.begin(t, "c1")
			d.append(t, "one", "two", "three")
			r := d.newReader()
			r.foldAll(t)
			third.commit(t)
			second.commit(t)
			first.commit(t)
			d.append(t, "four", "five")

			r.size = Size{Events: tc.limit, Bytes: tc.maxBytes}
			r.foldAll(t)
			want := []string{"one", "two", "three", "a1", "a2", "b1", "b2", "b3", "c1", "four", "five"}
			wantNames(t, r.folded, want...)
			for _, tx := range []transaction{first, second, third} {
				wantPending(t, r.cursor, tx, false)
			}
			wantNames(t, r.replayed(t, tc.limit), want...)
		})
	}
}

// A transaction whose events a limit cuts stays in the list, and those that are
// whole leave it.
func TestCutTransactionStaysPending(t *testing.T) {
	d := newDatabase(t)
	first, second, open := d.begin(t, "a1", "a2"), d.begin(t, "b1", "b2"), d.begin(t)
	d.append(t, "one")
	r := d.newReader()
	r.foldAll(t)
	first.commit(t)
	second.commit(t)
	r.size = Size{Events: 3, Bytes: 1 << 20}
	page, names := r.fold(t)
	wantNames(t, names, "a1", "a2", "b1")
	if !page.More {
		t.Error("a page that was cut says there is no more")
	}
	wantPending(t, r.cursor, first, false)
	wantPending(t, r.cursor, second, true)
	wantPending(t, r.cursor, open, true)
	wantNames(t, r.replayed(t, 10), "one", "a1", "a2", "b1")
}

// If a limit cut a page within a transaction, the rest of that comes before
// late events, which get places after it.
func TestLateEventsComeAfterTheRestOfATransaction(t *testing.T) {
	d := newDatabase(t)
	late := d.begin(t, "late 1", "late 2")
	d.append(t, "one", "two", "three", "four")
	d.append(t, "five")
	r := d.newReader()
	r.size.Events = 2
	_, names := r.fold(t)
	wantNames(t, names, "one", "two")
	late.commit(t)

	r.size.Events = 1
	_, names = r.fold(t)
	wantNames(t, names, "three")
	wantPending(t, r.cursor, late, true)
	r.size.Events = 100
	page, names := r.fold(t)
	wantNames(t, names, "four")
	if !page.More {
		t.Error("the page before late events says there is no more")
	}
	wantPending(t, r.cursor, late, true)
	_, names = r.fold(t)
	wantNames(t, names, "late 1", "late 2", "five")
	wantPending(t, r.cursor, late, false)
	wantNames(t, r.replayed(t, 3), r.folded...)
}

// The parts of a transaction between savepoints have ids of their own in
// Postgres, but not in the log.
func TestSavepoints(t *testing.T) {
	d := newDatabase(t)
	tx := d.begin(t)
	tx.exec(t, `SAVEPOINT kept`)
	tx.append(t, "kept")
	tx.exec(t, `RELEASE SAVEPOINT kept`)
	tx.exec(t, `SAVEPOINT undone`)
	tx.append(t, "undone")
	tx.exec(t, `ROLLBACK TO SAVEPOINT undone`)
	d.append(t, "one")
	r := d.newReader()
	r.foldAll(t)
	tx.exec(t, `SAVEPOINT open`)
	tx.append(t, "in the open one")
	d.append(t, "two")
	r.foldAll(t)
	wantPending(t, r.cursor, tx, true)
	tx.commit(t)
	r.foldAll(t)
	wantNames(t, r.folded, "one", "two", "kept", "in the open one")
	wantPending(t, r.cursor, tx, false)
	wantNames(t, r.replayed(t, 10), r.folded...)
}

// A replay does not read events of pending transactions, although they may be
// committed and before the position.
func TestReplayLeavesPendingTransactionsOut(t *testing.T) {
	d := newDatabase(t)
	late := d.begin(t, "late")
	d.append(t, "one")
	r := d.newReader()
	r.foldAll(t)
	late.commit(t)
	d.append(t, "two")
	wantNames(t, r.replayed(t, 10), "one")
	r.foldAll(t)
	wantNames(t, r.replayed(t, 10), "one", "late", "two")
}

// A patient reader stops before the events that follow a young transaction, and
// goes on when that has ended or is old.
func TestNextWaitsForYoungTransactions(t *testing.T) {
	d := newDatabase(t)
	r := d.newReader()
	r.watch.Patience = time.Hour
	old := d.begin(t, "old")
	r.watch.open = map[int64]time.Time{old.id: time.Now().Add(-r.watch.Patience)}
	d.append(t, "one")
	young := d.begin(t, "young")
	d.append(t, "two")

	page, names := r.fold(t)
	wantNames(t, names, "one")
	if !page.Waits || page.More {
		t.Errorf("waits %v, want true; more %v, want false", page.Waits, page.More)
	}
	wantPending(t, r.cursor, old, true)
	wantPending(t, r.cursor, young, false)

	young.commit(t)
	old.commit(t)
	page, names = r.fold(t)
	wantNames(t, names, "old", "young", "two")
	if page.Waits {
		t.Error("waits, although no transaction is open")
	}
}

// Transactions are young until they have been seen for as long as the patience,
// and forgotten once they have ended.
func TestWatch(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	w := Watch{Patience: 10 * time.Millisecond}
	for i, step := range []struct {
		at    time.Duration
		open  []int64
		after int64
		want  []int64
	}{
		{0, []int64{5, 7}, 0, []int64{5, 7}},
		{0, []int64{5, 7}, 5, []int64{7}}, // the position has passed it
		{4, []int64{5, 7, 9}, 0, []int64{5, 7, 9}},
		{9, []int64{7, 9}, 0, []int64{7, 9}}, // 5 has ended
		{10, []int64{7, 9}, 0, []int64{9}},
		{14, []int64{7, 9}, 0, nil},
	} {
		s := snapshot{xmin: step.open[0], xmax: 20, open: step.open}
		if got := w.young(&s, step.after, start.Add(step.at*time.Millisecond)); !slices.Equal(got, step.want) {
			t.Errorf("step %d: young are %v, want %v", i, got, step.want)
		}
	}
	if len(w.open) != 2 {
		t.Errorf("transactions that have ended are remembered: %v", w.open)
	}
	var impatient Watch
	if got := impatient.young(&snapshot{xmin: 5, xmax: 20, open: []int64{5}}, 0, start); len(got) > 0 {
		t.Errorf("without patience %v are young", got)
	}
}

func TestParseSnapshot(t *testing.T) {
	for text, want := range map[string]snapshot{
		"10:20:10,14":   {xmin: 10, xmax: 20, open: []int64{10, 14}},
		"10:20:14,10":   {xmin: 10, xmax: 20, open: []int64{10, 14}},
		"10:11:10":      {xmin: 10, xmax: 11, open: []int64{10}},
		"10:10:":        {xmin: 10, xmax: 10},
		"1:8589934592:": {xmin: 1, xmax: 1 << 33},
	} {
		got, err := parseSnapshot(text)
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(snapshot{})); diff != "" || err != nil {
			t.Errorf("%q (-want +got): %v\n%s", text, err, diff)
		}
	}
	for _, text := range []string{"", "10:20", "10:20:10:14", "x:20:", "10::", "10:20:10,", "10:20:10,x"} {
		if s, err := parseSnapshot(text); err == nil {
			t.Errorf("%q is parsed as %v", text, s)
		}
	}
	s := snapshot{xmin: 10, xmax: 20, open: []int64{10, 14}}
	for id, want := range map[int64]bool{9: true, 10: false, 11: true, 14: false, 19: true, 20: false, 21: false} {
		if got := s.ended(id); got != want {
			t.Errorf("%d has ended: %v, want %v", id, got, want)
		}
	}
}

// Cursors are read as they are stored, each with a list of its own.
func TestLoadCursors(t *testing.T) {
	d := newDatabase(t)
	for partition, pending := range []string{`{5,7}`, `{}`} {
		if _, err := d.Exec(t.Context(), `UPDATE badged.`+events.Topic(partition)+`_offsets
SET last_processed_transaction_id = '9', offset_acked = 3, pending = $2 WHERE consumer_group = $1`, events.ProjectorGroup, pending); err != nil {
			t.Fatal(err)
		}
	}
	position := events.Position{TransactionID: 9, Offset: 3}
	want := []Cursor{{position, []int64{}}, {position, []int64{5, 7}}}
	all, err := LoadAll(t.Context(), d, []int{1, 0})
	if diff := cmp.Diff(want, all); diff != "" || err != nil {
		t.Errorf("all cursors (-want +got): %v\n%s", err, diff)
	}
	for i, partition := range []int{1, 0} {
		one, err := Load(t.Context(), d, partition, "")
		if diff := cmp.Diff(want[i], one); diff != "" || err != nil {
			t.Errorf("cursor of partition %d (-want +got): %v\n%s", partition, err, diff)
		}
	}
	if none, err := LoadAll(t.Context(), d, nil); err != nil || len(none) > 0 {
		t.Errorf("the cursors of no partition are %v, %v", none, err)
	}
}
