package events_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
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

func TestPositionOfAnUnknownGroup(t *testing.T) {
	_, pool := newLog(t)
	p, err := events.PositionOf(t.Context(), pool, 0, "unknown")
	if err != nil || p != (events.Position{}) {
		t.Errorf("position %v, error %v", p, err)
	}
}

func TestParsePlace(t *testing.T) {
	for text, want := range map[string]events.Place{
		"12/34":   {Position: events.Position{TransactionID: 12, Offset: 34}},
		"12/34/5": {Position: events.Position{TransactionID: 12, Offset: 34}, Index: 5},
		"0/0":     {},
	} {
		if p, err := events.ParsePlace(text); err != nil || p != want || p.String() != text {
			t.Errorf("%q is %v, error %v", text, p, err)
		}
	}
	for _, text := range []string{"", "12", "12/", "/34", "12/34/", "12/34/0", "12/34/-1", "12/34/5/6", "12/34 ", "a/b", "012/34", "99999999999999999999/1"} {
		if p, err := events.ParsePlace(text); err == nil {
			t.Errorf("%q is %v", text, p)
		}
	}
}

// Places are ordered by position, then by index.
func TestPlacesAreOrdered(t *testing.T) {
	var before events.Place
	for i, text := range []string{"1/2", "1/2/1", "1/3", "2/1/5", "2/1/6"} {
		p, err := events.ParsePlace(text)
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 && (!before.Before(p) || p.Before(before)) || p.Before(p) {
			t.Errorf("%v is not right after %v", p, before)
		}
		before = p
	}
}
