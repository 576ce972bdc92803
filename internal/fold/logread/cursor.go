// Package logread reads the log of a partition in the order in which events are folded.
//
// The log is ordered by transaction id, then by offset. If a transaction is still open when
// the projector passes its id, it may later commit events at places behind the position. So
// its id is added to the list of pending transactions, which is stored with the position. When
// a pending transaction ends, the batch that folds its events moves them to places directly
// after the position. So the log up to the position is always in the order of folding, and a
// replay needs no other record of late events.
//
// The list of pending transactions is the method of PgQ (Skype, 2007).
//
// The package does not know the fold. ADR 53 has the reasons.
package logread

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
)

// Cursor is how far a partition is folded: up to Position, except the events of the Pending
// transactions.
type Cursor struct {
	events.Position
	// Pending has the ids of transactions that were open when the position passed them, and
	// whose events have not been folded since. All ids are at or before the position, in
	// ascending order.
	Pending []int64
}

// cursorColumns are the columns that Targets scans, from the projector's row in the table of
// positions.
const cursorColumns = `last_processed_transaction_id::text::bigint, offset_acked, pending::text[]::bigint[]`

// Targets returns the scan targets for cursorColumns.
func (c *Cursor) Targets() []any { return []any{&c.TransactionID, &c.Offset, &c.Pending} }

// Passed reports whether all events of a transaction are folded, given that the transaction
// has ended.
func (c *Cursor) Passed(transactionID int64) bool {
	return transactionID <= c.TransactionID && !slices.Contains(c.Pending, transactionID)
}

// Load reads the cursor of a partition. lock is the locking clause of the query, "" for none.
func Load(ctx context.Context, q events.Querier, partition int, lock string) (c Cursor, err error) {
	err = q.QueryRow(ctx, `SELECT `+cursorColumns+`
FROM badged.`+events.Topic(partition)+`_offsets WHERE consumer_group = $1 `+lock, events.ProjectorGroup).Scan(c.Targets()...)
	if err != nil {
		return Cursor{}, fmt.Errorf("read the position of partition %d: %w", partition, err)
	}
	return c, nil
}

// LoadAll reads the cursors of the partitions, in the same order. Later queries take a cursor
// as parameters instead of joining its row: only then can Postgres skip ranges of the log
// without opening each.
func LoadAll(ctx context.Context, q events.Querier, partitions []int) ([]Cursor, error) {
	var sql strings.Builder
	for i, p := range partitions {
		if i > 0 {
			sql.WriteString("\nUNION ALL\n")
		}
		fmt.Fprintf(&sql, `SELECT %d, %s
FROM badged.%s_offsets WHERE consumer_group = $1`, i, cursorColumns, events.Topic(p))
	}
	cursors := make([]Cursor, len(partitions))
	if len(partitions) == 0 {
		return cursors, nil
	}
	rows, _ := q.Query(ctx, sql.String(), events.ProjectorGroup)
	var i int
	var c Cursor
	if _, err := pgx.ForEachRow(rows, append([]any{&i}, c.Targets()...), func() error {
		cursors[i] = c
		c.Pending = nil // the next row has a list of its own
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read positions: %w", err)
	}
	return cursors, nil
}

// After returns the condition that a row of the log comes after the position of a cursor. Its
// arguments are those that Args returns, numbered from $first on. The second part of the
// condition follows from the first; it lets Postgres skip ranges of the log.
func After(first int) string {
	return fmt.Sprintf(`(transaction_id, "offset") > ($%[1]d::bigint::text::xid8, $%[2]d::bigint) AND transaction_id >= $%[1]d::bigint::text::xid8`, first, first+1)
}

// Late returns the condition that a pending transaction of a cursor appended a row. Its
// arguments are numbered as in After.
func Late(first int) string {
	return fmt.Sprintf(`transaction_id = ANY ($%d::bigint[]::text[]::xid8[])`, first+2)
}

// Args returns the arguments of After and Late.
func (c *Cursor) Args() []any { return []any{c.TransactionID, c.Offset, c.pending()} }

// pending returns the pending transactions. It never returns nil, which would be sent as null.
func (c *Cursor) pending() []int64 {
	if c.Pending == nil {
		return []int64{}
	}
	return c.Pending
}

// UpTo returns the condition that a row of the log is folded at a cursor. Its arguments are
// those that Args returns, numbered from $first on.
func UpTo(first int) string {
	return fmt.Sprintf(`(transaction_id, "offset") <= ($%d::bigint::text::xid8, $%d::bigint) AND NOT (%s)`, first, first+1, Late(first))
}
