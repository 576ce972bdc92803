package events

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// ErrRestored is returned where the log was not written in the Postgres cluster
// that it is in, but copied there row by row, by pg_dump or logical
// replication. Its order is that of transaction ids, and those are another
// cluster's: events may be invisible, and new ones come before old ones.
var ErrRestored = errors.New("the event log was restored from a dump or replicated from another Postgres cluster, " +
	"and its transaction ids mean nothing in this one; stop all badged servers and run `badged repair-log --database-url …`, " +
	"which puts it in order and loses nothing")

// checkOrigin returns ErrRestored unless the log is at home here: by the row of
// badged.log_origin, which no copy of rows leaves true, and, should only some
// tables have been copied, by ids that this cluster has yet to give out.
func checkOrigin(ctx context.Context, q Querier, partitions int) error {
	var home bool
	var last, next int64
	if err := q.QueryRow(ctx, originSQL(partitions)).Scan(&home, &last, &next); err != nil {
		return fmt.Errorf("look where the log is at home: %w", notMigrated(err))
	}
	if last >= next {
		return fmt.Errorf("%w (it has transaction id %d, this cluster's next one is %d)", ErrRestored, last, next)
	}
	if !home {
		return ErrRestored
	}
	return nil
}

// originSQL returns whether the log is at home, the greatest transaction id in
// it and its positions, and the next one that the cluster gives out. Each look
// is one at the end of an index, or at a table of few rows.
func originSQL(partitions int) string {
	var last strings.Builder
	for p := range partitions {
		topic := Topic(p)
		if p > 0 {
			last.WriteString("\n    UNION ALL\n")
		}
		fmt.Fprintf(&last, `    (SELECT transaction_id AS id FROM %s ORDER BY 1 DESC LIMIT 1)
    UNION ALL
    (SELECT last_processed_transaction_id FROM %s ORDER BY 1 DESC LIMIT 1)`, messagesTable(topic), offsetsTable(topic))
	}
	return `SELECT ` + AtHomeSQL + `,
    (SELECT coalesce(max(id::text::bigint), 0) FROM (
` + last.String() + `
    ) AS ids),
    pg_snapshot_xmax(pg_current_snapshot())::text::bigint`
}

// AtHomeSQL is a condition: that the log was written in this cluster. The id of
// a row's transaction is kept in 32 bits, and stays when the row is frozen.
const AtHomeSQL = `EXISTS (
    SELECT FROM badged.log_origin
    WHERE tableoid = table_id AND xmin::text::bigint = (transaction_id::text::bigint & 4294967295))`
