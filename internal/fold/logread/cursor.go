// Package logread reads the log of a partition in the order in which events are folded.
//
// The log is ordered by transaction id, then by offset. A transaction may still be open when
// the projector passes its id. If the transaction commits later, its events are at places
// before the position. So the projector adds the id to the list of pending transactions, which
// is stored with the position. After a pending transaction has ended, a batch folds its
// events, and moves their rows to places directly after the former position. So the log up to
// the position is always in the order of folding, and a replay needs no other record of late
// events.
//
// PgQ (Skype, 2007) stores a list of open transactions with each position in the same way.
//
// The package does not know the fold. ADR 53 has the reasons.
package logread

import (
	"context"
	"fmt"
	"strings"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/pg/query"
)

// Cursor says which events of a partition are folded: all events up to Position, except the
// events of the Pending transactions.
type Cursor struct {
	events.Position
	// Pending has the ids of transactions that were open when the position passed them, and
	// whose events are not folded yet. The ids are in ascending order, and none is greater
	// than the transaction id of Position.
	Pending []int64
}

// cursorColumns are the columns of a cursor, in the order of the scan targets that Targets
// returns. They are in the projector's row of the table of positions.
const cursorColumns = `last_processed_transaction_id::text::bigint, offset_acked, pending::text[]::bigint[]`

// Targets returns the scan targets for cursorColumns.
func (c *Cursor) Targets() []any { return []any{&c.TransactionID, &c.Offset, &c.Pending} }

// Load reads the cursor of a partition. lock is a locking clause such as FOR UPDATE, or "" to
// read without a lock.
func Load(ctx context.Context, q events.Querier, partition int, lock string) (c Cursor, err error) {
	err = q.QueryRow(ctx, `SELECT `+cursorColumns+`
FROM badged.`+events.Topic(partition)+`_offsets WHERE consumer_group = $1 `+lock, events.ProjectorGroup).Scan(c.Targets()...)
	if err != nil {
		return Cursor{}, fmt.Errorf("read the position of partition %d: %w", partition, err)
	}
	return c, nil
}

// LoadAll reads the cursors of the partitions, and returns them in the order of `partitions`.
// Callers pass a cursor to later queries as parameters. If a query joined the row of the cursor
// instead, Postgres would have to open the tables of all old ranges of the log; with parameters it
// skips these tables.
func LoadAll(ctx context.Context, q events.Querier, partitions []int) ([]Cursor, error) {
	each := make([]string, len(partitions))
	for i, p := range partitions {
		each[i] = fmt.Sprintf(`SELECT %d, %s
FROM badged.%s_offsets WHERE consumer_group = $1`, i, cursorColumns, events.Topic(p))
	}
	cursors := make([]Cursor, len(partitions))
	if len(partitions) == 0 {
		return cursors, nil
	}
	var i int
	var c Cursor
	return cursors, query.Each(ctx, q, "read positions", strings.Join(each, "\nUNION ALL\n"), []any{events.ProjectorGroup}, append([]any{&i}, c.Targets()...), func() error {
		cursors[i] = c
		c.Pending = nil // the next row has a list of its own
		return nil
	})
}

// After returns the SQL condition that a row of the log comes after the position of a cursor.
// Its parameters are $first and $first+1, for the first two values of Args. The second part of
// the condition follows from the first part, and lets Postgres skip old ranges of the log.
func After(first int) string {
	return fmt.Sprintf(`(transaction_id, "offset") > ($%[1]d::bigint::text::xid8, $%[2]d::bigint) AND transaction_id >= $%[1]d::bigint::text::xid8`, first, first+1)
}

// Late returns the SQL condition that a pending transaction of a cursor appended a row. $first to
// $first+2 are the parameters for the values of Args; the condition uses only the last parameter.
func Late(first int) string {
	return fmt.Sprintf(`transaction_id = ANY ($%d::bigint[]::text[]::xid8[])`, first+2)
}

// Args returns the arguments for the conditions After, Late and UpTo.
func (c *Cursor) Args() []any { return []any{c.TransactionID, c.Offset, c.PendingArg()} }

// PendingArg returns Pending as an argument of a statement. It never returns nil, which would be
// sent as NULL.
func (c *Cursor) PendingArg() []int64 {
	if c.Pending == nil {
		return []int64{}
	}
	return c.Pending
}

// UpTo returns the SQL condition that a row of the log is folded at a cursor: the row is not
// after the position, and no pending transaction appended it. Its parameters are $first to
// $first+2, for the values of Args.
func UpTo(first int) string {
	return fmt.Sprintf(`(transaction_id, "offset") <= ($%d::bigint::text::xid8, $%d::bigint) AND NOT (%s)`, first, first+1, Late(first))
}
