package moving

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/fold/logread"
	"github.com/badged/badged/internal/partition"
)

// CopyLog implements copier.Operation. It copies rows in the order in which they were folded.
// The copied rows get transaction id 3, the lowest id of a transaction in any database, and
// ascending offsets. So they come before all rows that the target appends. Archives and dead
// letters may refer to places with transaction id 3 whose rows were deleted, so the new offsets are
// greater than all offsets that the partition has ever had with this id. After the last row,
// CopyLog translates the places in the log that the source's tables store.
func (m *mover) CopyLog(ctx context.Context, tx pgx.Tx, cursor logread.Cursor) (more bool, err error) {
	const limit = 2000
	moved := &m.target.move
	if !moved.copied.Before(cursor.Position) {
		return false, m.translate(ctx, tx, cursor)
	}
	bound, err := m.source.Bound(ctx, moved.copied, cursor.Position, limit)
	if err != nil {
		return false, err
	}
	topic := partition.Log(m.p)
	const order = `transaction_id, "offset"`
	query := fmt.Sprintf(`SELECT xid8 '3', %d + row_number() OVER (ORDER BY `+order+`), created_at, era, uuid, own, events, payload, metadata FROM `+topic+`
WHERE (`+order+`) > (xid8 '%d', %d) AND transaction_id >= xid8 '%[2]d' AND (`+order+`) <= (xid8 '%[4]d', %d) AND transaction_id <= xid8 '%[4]d'
AND transaction_id <> ALL ('{%[6]s}'::xid8[]) ORDER BY `+order,
		moved.baseOffset+moved.rows, moved.copied.TransactionID, moved.copied.Offset, bound.TransactionID, bound.Offset, joined(cursor.Pending))
	n, err := m.Pipe(ctx, query, topic, `transaction_id, "offset", created_at, era, uuid, own, events, payload, metadata`)
	if err != nil {
		return false, err
	}
	now := *moved
	now.copied, now.rows = bound, moved.rows+n
	if _, err := tx.Exec(ctx, statements.Get("the log is copied up to"), m.p, now.copied.TransactionID, now.copied.Offset, now.rows); err != nil {
		return false, err
	}
	*moved = now
	m.result.LogRows = now.rows
	if more = now.copied.Before(cursor.Position); !more {
		err = m.translate(ctx, tx, cursor)
	}
	return more, err
}

// joined returns numbers separated by commas.
func joined(numbers []int64) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(numbers), "[]"), " ", ",")
}
