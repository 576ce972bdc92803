package eventlog

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/pg/query"
)

// heldSQL reads the partitions that a database holds.
const heldSQL = `SELECT partition_id FROM badged.partitions ORDER BY partition_id`

// Querier runs queries: a pgx connection, pool or transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Held returns the partitions that a database holds, in ascending order. If the log has only one
// database, it holds all partitions. With several databases, a partition may be moved to another
// database at any time.
func Held(ctx context.Context, q Querier) ([]int, error) {
	return query.All(ctx, q, "read which partitions the database holds", pgx.RowTo[int], heldSQL)
}

// IsGone reports whether this process must release a partition: ctx is done, or the database
// does not hold the partition any more, after a split or a move. The caller must cancel ctx
// when the process no longer owns the partition. If IsGone cannot read which partitions the
// database holds, the result depends on ctx alone.
func IsGone(ctx context.Context, q Querier, partition int) bool {
	held, err := Held(ctx, q)
	return ctx.Err() != nil || err == nil && !slices.Contains(held, partition)
}
