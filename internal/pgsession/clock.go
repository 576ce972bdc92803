package pgsession

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/dbclock"
)

// Querier is what the clock is read with.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Now returns the time of a database.
func Now(ctx context.Context, q Querier) (now time.Time, err error) {
	if err := q.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now); err != nil {
		return now, fmt.Errorf("read the clock of the database: %w", err)
	}
	return now, nil
}

// AgreedNow returns the time of a database, or a [*dbclock.DifferError] if this process has
// another: for what cannot be undone.
func AgreedNow(ctx context.Context, q Querier) (time.Time, error) {
	var c dbclock.Clock
	if err := c.Measure(ctx, func(ctx context.Context) (time.Time, error) { return Now(ctx, q) }); err != nil {
		return time.Time{}, err
	}
	return c.Now(), c.Check()
}
