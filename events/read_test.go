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
