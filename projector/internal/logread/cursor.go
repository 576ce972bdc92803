// Package logread reads the log of a partition in the order in which it is
// folded.
//
// The log is ordered by transaction id, then by offset. A transaction that is
// open when the projector passes its id may still commit events with a place
// behind the position. Its id goes into the list of pending transactions,
// which is stored with the position. When a pending transaction ends, the
// batch that folds its events moves them to places right after the position.
// So the order of the log up to the position is always the order of folding:
// replaying the log needs no other record of what came late.
//
// The list of pending transactions is the method of PgQ (Skype, 2007).
//
// It does not know the fold. ADR 53 has the reasons.
package logread

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
)

// Cursor is how far a partition is folded: everything up to Position, except
// what the Pending transactions have appended, or may append.
type Cursor struct {
	events.Position
	// Pending are the ids, at or before the position, of the transactions that
	// were open when the position passed them and whose events, if there are
	// any, were not folded since. They are in ascending order.
	Pending []int64
}

// cursorColumns are the columns that Targets scans, of the row of the projector in
// the table of positions.
const cursorColumns = `last_processed_transaction_id::text::bigint, offset_acked, pending::text[]::bigint[]`

// Targets returns the scan targets for cursorColumns.
func (c *Cursor) Targets() []any { return []any{&c.TransactionID, &c.Offset, &c.Pending} }

// Passed reports whether everything that a transaction appended is folded, if
// it has ended.
func (c *Cursor) Passed(transactionID int64) bool {
	return transactionID <= c.TransactionID && !slices.Contains(c.Pending, transactionID)
}

// Load reads the cursor of a partition. lock is the locking clause for its row,
// "" for none.
func Load(ctx context.Context, q events.Querier, partition int, lock string) (c Cursor, err error) {
	err = q.QueryRow(ctx, `SELECT `+cursorColumns+`
FROM badged.`+events.Topic(partition)+`_offsets WHERE consumer_group = $1 `+lock, events.ProjectorGroup).Scan(c.Targets()...)
	if err != nil {
		return Cursor{}, fmt.Errorf("read the position of partition %d: %w", partition, err)
	}
	return c, nil
}

// LoadAll reads the cursors of partitions, in their order. Queries that depend
// on a cursor take it as a parameter: only then can Postgres skip ranges of the
// log without opening them all.
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

// After returns the condition that a row of the log comes after the position
// of a cursor, and Late that a pending transaction of it appended the row. The
// arguments are, from number $first on, those of Args. The second part of After
// follows from the first; it lets Postgres skip ranges of the log.
func After(first int) string {
	return fmt.Sprintf(`(transaction_id, "offset") > ($%[1]d::bigint::text::xid8, $%[2]d::bigint) AND transaction_id >= $%[1]d::bigint::text::xid8`, first, first+1)
}

// Late is described with After.
func Late(first int) string {
	return fmt.Sprintf(`transaction_id = ANY ($%d::bigint[]::text[]::xid8[])`, first+2)
}

// Args returns the arguments of After and Late.
func (c *Cursor) Args() []any { return []any{c.TransactionID, c.Offset, c.pending()} }

// pending returns the pending transactions, never nil, which would be null.
func (c *Cursor) pending() []int64 {
	if c.Pending == nil {
		return []int64{}
	}
	return c.Pending
}

// UpTo returns the condition that a row of the log is folded at a cursor. Its
// arguments are, from number $first on, those of Args.
func UpTo(first int) string {
	return fmt.Sprintf(`(transaction_id, "offset") <= ($%d::bigint::text::xid8, $%d::bigint) AND NOT (%s)`, first, first+1, Late(first))
}
