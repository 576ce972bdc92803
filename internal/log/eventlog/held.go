package eventlog

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// heldSQL reads the partitions that a database holds.
const heldSQL = `SELECT partition_id FROM badged.partitions ORDER BY partition_id`

// Querier runs queries: a pgx connection, pool or transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Held returns the partitions that a database holds, in ascending order. A single database
// holds all partitions. With several databases, a partition may be moved to another database at
// any time.
func Held(ctx context.Context, q Querier) ([]int, error) {
	rows, _ := q.Query(ctx, heldSQL)
	held, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return nil, fmt.Errorf("read which partitions the database holds: %w", err)
	}
	return held, nil
}

// Gone reports whether this process must release a partition: ctx is done, or the database
// does not hold the partition any more, after a split or a move. The caller must cancel ctx
// when the process no longer owns the partition. If Gone cannot read which partitions the
// database holds, the result depends on ctx alone.
func Gone(ctx context.Context, q Querier, partition int) bool {
	held, err := Held(ctx, q)
	return ctx.Err() != nil || err == nil && !slices.Contains(held, partition)
}
