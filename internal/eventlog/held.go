package eventlog

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// heldSQL finds what a database holds: all partitions, unless it is a shard.
const heldSQL = `SELECT partition_id FROM badged.partitions ORDER BY partition_id`

// Held returns the partitions that a database holds, in ascending order: all of them,
// unless it is a shard of several. A partition may move to another shard at any time.
func Held(ctx context.Context, q Querier) ([]int, error) {
	rows, _ := q.Query(ctx, heldSQL)
	held, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return nil, fmt.Errorf("read which partitions the database holds: %w", err)
	}
	return held, nil
}

// Gone reports whether a partition is given up: the database does not hold it any more, since
// it was split or has moved to another shard, or ctx, which lasts as long as the partition is
// owned, is done by now. It is false if what is held cannot be read.
func Gone(ctx context.Context, q Querier, partition int) bool {
	held, err := Held(ctx, q)
	return ctx.Err() != nil || err == nil && !slices.Contains(held, partition)
}
