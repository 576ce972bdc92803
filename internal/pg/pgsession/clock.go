package pgsession

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/pg/dbclock"
)

// Querier runs a query that returns one row. It is a connection, a pool or a transaction.
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

// AgreedNow returns the time of a database. It fails with a [*dbclock.DifferError] if the clocks
// of this process and of the database differ by more than [dbclock.MaxDifference]. Call it before
// work that cannot be undone, such as expiry and archiving.
func AgreedNow(ctx context.Context, q Querier) (time.Time, error) {
	var c dbclock.Clock
	if err := c.Measure(ctx, func(ctx context.Context) (time.Time, error) { return Now(ctx, q) }); err != nil {
		return time.Time{}, err
	}
	return c.Now(), c.Check()
}
