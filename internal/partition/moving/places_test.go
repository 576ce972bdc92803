package moving_test

import (
	"slices"
	"testing"

	"github.com/badged/badged/internal/devtest/foldtest"
)

// A partition that moves again gets new places: no other row gets the place of a dead letter whose
// row was archived meanwhile.
func TestNoPlaceIsGivenTwice(t *testing.T) {
	t.Parallel()
	t.Run("moved", func(t *testing.T) {
		t.Parallel()
		testNoPlaceIsGivenTwice(t, "")
	})
	t.Run("replicated without its sequences", func(t *testing.T) {
		t.Parallel()
		testNoPlaceIsGivenTwice(t, `SELECT setval(pg_get_serial_sequence('badged.events_p00', 'offset'), 1)`)
	})
}

// meanwhile is run where the partition is between its moves.
func testNoPlaceIsGivenTwice(t *testing.T, meanwhile string) {
	a, b := newShards(t)
	user := foldtest.User(0, 0)
	a.InsertPayload(t, "no event")
	a.AppendEach(t, foldtest.Deliver("c", 1, user), foldtest.Deliver("c", 2, user))
	a.Fold(t)
	move(t, config(a, b, 0, "b"))
	a.StopFolding()

	const letters, rows = `SELECT transaction_id || '/' || "offset" FROM badged.dead_letters`, `SELECT transaction_id || '/' || "offset" FROM badged.events_p00 ORDER BY transaction_id, "offset"`
	letter, given := b.Lines(t, letters), b.Lines(t, rows)
	if len(letter) != 1 || len(given) != 3 || given[0] != letter[0] {
		t.Fatalf("the letters are %v, the rows %v", letter, given)
	}
	// As after archiving: the row is gone and the letter is there.
	b.Exec(t, `DELETE FROM badged.events_p00 AS e USING badged.dead_letters AS l WHERE (e.transaction_id, e."offset") = (l.transaction_id, l."offset")`)
	b.Exec(t, meanwhile)
	running(t, b)
	b.Append(t, foldtest.Deliver("c", 3, user))
	b.InsertPayload(t, "no event")
	b.AwaitFolded(t)
	verify(t, b, 0)

	move(t, config(a, b, 0, "a"))
	if now := a.Lines(t, letters); len(now) != 2 || now[0] != letter[0] {
		t.Errorf("the letters are %v, the first was %v", now, letter)
	}
	for _, place := range a.Lines(t, rows) {
		if slices.Contains(given, place) {
			t.Errorf("the place %s is given twice", place)
		}
	}
	verify(t, a, 0)

	// What is appended comes behind.
	running(t, a)
	a.Append(t, foldtest.Deliver("c", 4, user))
	a.AwaitFolded(t)
	if got := a.Badge(t, user); got.Total != 4 {
		t.Errorf("the total is %d, want 4", got.Total)
	}
	verify(t, a, 0)
}
