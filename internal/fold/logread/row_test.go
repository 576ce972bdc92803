package logread

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
)

// appendRow appends a row as it is.
func (tx transaction) appendRow(t *testing.T, row []byte) {
	t.Helper()
	tx.exec(t, `INSERT INTO badged.events_p00 (uuid, payload) VALUES (gen_random_uuid(), $1)`, row)
}

// packed returns a row of names, which is compressed if it is long.
func packed(names ...string) []byte {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = fmt.Sprintf("%q", name)
	}
	return foldtest.Row(texts...)
}

// numbered returns n names.
func numbered(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint(prefix, " ", i)
	}
	return names
}

// A row with several events is read whole, wherever a limit falls, late or not,
// and each event has the place of its row and its index.
func TestBatchesAreReadWhole(t *testing.T) {
	for _, limit := range []int{1, 2, 7, 1000} {
		t.Run(fmt.Sprint("limit ", limit), func(t *testing.T) {
			d := newDatabase(t)
			late := d.begin(t)
			tx := d.begin(t, "one")
			long, short := numbered("long", 500), numbered("short", 3)
			tx.appendRow(t, packed(long...))
			tx.append(t, "two")
			tx.appendRow(t, packed(short...))
			tx.commit(t)
			r := d.newReader()
			r.size = Size{Events: limit, Bytes: 1 << 20}
			r.foldAll(t)
			want := slices.Concat([]string{"one"}, long, []string{"two"}, short)
			wantNames(t, r.folded, want...)

			late.appendRow(t, packed(numbered("late", 4)...))
			late.appendRow(t, packed(numbered("later", 300)...))
			late.commit(t)
			d.append(t, "three")
			before := r.cursor.Position
			page, _ := r.fold(t)
			for i, record := range page.Records[:4] {
				if want := (events.Place{Position: events.Position{TransactionID: before.TransactionID, Offset: before.Offset + 1}, Index: i}); record.Place != want {
					t.Errorf("late event %d is at %v, want %v", i, record.Place, want)
				}
			}
			r.foldAll(t)
			want = slices.Concat(want, numbered("late", 4), numbered("later", 300), []string{"three"})
			wantNames(t, r.folded, want...)
			wantNames(t, r.replayed(t, limit), want...)
		})
	}
}

// Rows that cannot be taken apart are records with the reason. Others follow.
func TestDamagedRows(t *testing.T) {
	d := newDatabase(t)
	good := packed(numbered("good", 300)...)
	damaged := slices.Clone(good)
	damaged[len(damaged)/2] ^= 0x55
	tx := d.begin(t)
	tx.appendRow(t, damaged)
	tx.exec(t, `INSERT INTO badged.events_p00 (uuid, payload) VALUES (gen_random_uuid(), convert_to(repeat('x', 9 << 20), 'UTF8'))`)
	tx.appendRow(t, []byte(`["a",`))
	tx.appendRow(t, nil)
	tx.appendRow(t, good)
	tx.commit(t)
	page, err := Next(t.Context(), d, 0, Cursor{}, &Watch{}, &Size{Events: 100, Bytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Records) != 4+300 || page.To.Position != page.Records[4].Position {
		t.Fatalf("%d records up to %v", len(page.Records), page.To)
	}
	for i, want := range []struct {
		damage  string
		payload []byte
	}{
		{"the row cannot be decompressed", damaged},
		{"the row has 9437184 bytes; at most 8388608 are read", nil},
		{"it ends too early", []byte(`["a",`)},
		{"", nil},
	} {
		r := page.Records[i]
		if got := fmt.Sprint(r.Damage); want.damage == "" && r.Damage != nil || !strings.Contains(got, want.damage) {
			t.Errorf("row %d: %v, want %q", i, r.Damage, want.damage)
		}
		if diff := cmp.Diff(want.payload, r.Payload); diff != "" {
			t.Errorf("payload of row %d (-want +got):\n%s", i, diff)
		}
	}
	wantNames(t, namesOf(t, page.Records[4:]), numbered("good", 300)...)
}

// A Size asks for as many rows as pages like the last one hold, and for one at
// least.
func TestSizeLearns(t *testing.T) {
	s := Size{Events: 1000, Bytes: 1 << 20}
	for _, tc := range []struct{ rows, events, bytes, want int }{
		{0, 0, 0, 1000}, {10, 1000, 10_000, 11}, {1, 1000, 300_000, 2}, {1, 1, 2 << 20, 1}, {100, 100, 30_000, 1000}, {5, 5000, 1000, 2},
	} {
		s.learn(tc.rows, tc.events, tc.bytes)
		if got := s.rows(); got != tc.want {
			t.Errorf("after %d rows with %d events of %d bytes it asks for %d rows, want %d", tc.rows, tc.events, tc.bytes, got, tc.want)
		}
	}
}
