package logread

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/badged/badged/events"
)

// Page is the part of the log that a batch folds next.
type Page struct {
	From, To Cursor
	// Records has the events in the order of folding: all events of each row that was read.
	// Late events come first: events of pending transactions. They already have the positions
	// to which the batch will move their rows.
	Records []events.Record
	// Late has the current positions of the rows with late events.
	Late []events.Position
	// More is true if a limit cut the page short, so that there may be more to read now.
	More bool
	// Waits is true if the log has an event that must not be read yet: a transaction with a lower
	// id than the event's transaction is still open, and was first seen less than the Patience of
	// the [Watch] ago.
	Waits bool
	// ReadAt is when the page was read, by the clock of the database.
	ReadAt time.Time
}

// Next reads the events to fold after a cursor: first events of pending transactions that have
// ended, then events after the position. ADR 53 has the reasons.
func Next(ctx context.Context, q events.Querier, partition int, from Cursor, w *Watch, size *Size) (Page, error) {
	limit := size.rows()
	args := []any{from.TransactionID, from.Offset, limit}
	if len(from.Pending) > 0 {
		args = append(from.Args(), limit)
	}
	rows, _ := q.Query(ctx, nextSQL(partition, len(from.Pending) > 0), args...)
	defer rows.Close()
	p := pager{Page: Page{From: from}, limit: limit, maxEvents: size.Events, maxBytes: size.Bytes, watch: w}
	if err := p.read(rows); err != nil {
		return Page{}, fmt.Errorf("read partition %d: %w", partition, err)
	}
	size.learn(p.lateRows+p.nextRows, len(p.Records), p.size)
	return p.Page, nil
}

// Kinds of rows that nextSQL returns, in this order.
const (
	rowSnapshot = iota
	rowLate
	rowNext
)

// nextSQL returns one statement, so that all its rows come from one snapshot. The first row
// describes this snapshot. Then come rows of pending transactions that have committed, and last the
// rows after the position. If a row after the position is absent, then either the limit cut it off,
// or its transaction was open in the snapshot.
func nextSQL(partition int, pending bool) string {
	table := `badged.` + events.Topic(partition)
	late, limit, within := "", 3, "false"
	if pending {
		limit = 4
		within = fmt.Sprintf(`EXISTS (SELECT FROM %s WHERE transaction_id = $1::bigint::text::xid8 AND "offset" > $2)`, table)
		late = fmt.Sprintf(`UNION ALL
(SELECT %d, '', %s FROM %s
WHERE %s ORDER BY transaction_id, "offset" LIMIT $%d)
`, rowLate, Columns, table, Late(1), limit)
	}
	return fmt.Sprintf(`SELECT %d, pg_current_snapshot()::text, '0'::xid8, 0::bigint, '00000000-0000-0000-0000-000000000000'::uuid, clock_timestamp(), %s, NULL::bytea, NULL::int
%sUNION ALL
(SELECT %d, '', %s FROM %s
WHERE %s ORDER BY transaction_id, "offset" LIMIT $%d)`, rowSnapshot, within, late, rowNext, Columns, table, After(1), limit)
}

// row is the scan target for rows of the log.
type row struct {
	id      uint64
	payload pgtype.DriverBytes
	bytes   *int32
	events.Record
	payloads
}

// targets returns the scan targets for Columns.
func (r *row) targets() []any {
	return []any{&r.id, &r.Offset, (*[16]byte)(&r.UUID), &r.AppendedAt, &r.Own, &r.payload, &r.bytes}
}

// transaction returns the id of the transaction that appended the row.
func (r *row) transaction() int64 { return int64(r.id) } //nolint:gosec // ids are below 2^63

// split appends the events of the scanned row to records.
func (r *row) split(records []events.Record) []events.Record {
	r.TransactionID = r.transaction()
	r.Payload = r.keep(r.payload)
	bytes := 0
	if r.bytes != nil {
		bytes = int(*r.bytes)
	}
	before := len(records)
	records = split(records, r.Record, bytes)
	for i := before; i < len(records); i++ {
		r.size += len(records[i].Payload)
	}
	return records
}

// pager builds a page from rows.
type pager struct {
	Page
	// limit is the maximum number of late rows, and of rows after the position, that the
	// statement returns.
	limit               int
	maxEvents, maxBytes int
	watch               *Watch

	snapshot snapshot
	// young has the open transactions for which the reader waits, in ascending order: the page must
	// not have events of transactions with greater ids.
	young              []int64
	late, next         []events.Record
	lateRows, nextRows int
	// within is true if the position is inside a transaction: a limit ended the previous page
	// there, and the log has further events of this transaction.
	within bool
	// cut is true if not all late events fit into the page, or if this is not known.
	cut bool
	row
}

func (p *pager) read(rows pgx.Rows) error {
	var kind int32
	var text string
	targets := append([]any{&kind, &text}, p.targets()...)
	for p.size < p.maxBytes && rows.Next() {
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		switch kind {
		case rowSnapshot:
			var err error
			if p.snapshot, err = parseSnapshot(text); err != nil {
				return err
			}
			p.ReadAt, p.within = p.AppendedAt, p.Own
			p.young = p.watch.young(&p.snapshot, p.From.TransactionID, time.Now())
			continue
		case rowLate:
			if p.within || len(p.late) >= p.maxEvents {
				p.cut = true
				continue
			}
			p.late = p.split(p.late)
			p.lateRows++
			p.cut = p.lateRows == p.limit || len(p.late) >= p.maxEvents
			continue
		}
		if len(p.late)+len(p.next) >= p.maxEvents {
			p.More = true
			break
		}
		if p.cut && p.transaction() != p.From.TransactionID {
			break // see arrange
		}
		if p.transaction() >= p.snapshot.xmax {
			break // the id is not assigned yet; maintenance moves the event to the dead letters
		}
		if len(p.young) > 0 && p.young[0] < p.transaction() {
			p.Waits = true
			break
		}
		p.next = p.split(p.next)
		p.nextRows++
	}
	p.cut = p.cut || p.size >= p.maxBytes && p.nextRows == 0 && p.lateRows > 0
	p.More = p.More || p.cut || p.size >= p.maxBytes || p.nextRows == p.limit || len(p.late)+len(p.next) >= p.maxEvents
	rows.Close() // before Err; also discards the remaining rows
	if err := rows.Err(); err != nil {
		return err
	}
	p.arrange()
	return nil
}

// arrange puts late events before the events that follow the position, and sets the new cursor.
// Late rows get new places between the old position and the next transaction. If the old position
// is inside a transaction, there are no such places. The page then has only the rest of this
// transaction, and no later transactions. The late events must be folded before later transactions,
// since a publisher may have appended the late events earlier.
func (p *pager) arrange() {
	p.To = Cursor{Position: p.From.Position}
	p.Records = p.next
	if len(p.late) > 0 {
		p.Records = make([]events.Record, 0, len(p.late)+len(p.next))
		for _, r := range p.late {
			if r.Index == 0 {
				p.Late = append(p.Late, r.Position)
				p.To.Offset++
			}
			r.Position = p.To.Position
			p.Records = append(p.Records, r)
		}
		p.Records = append(p.Records, p.next...)
	}
	if len(p.next) > 0 {
		p.To.Position = p.next[len(p.next)-1].Position
	}
	for _, id := range p.From.Pending {
		if !p.snapshot.ended(id) || p.cut && !p.moved(id) {
			p.To.Pending = append(p.To.Pending, id)
		}
	}
	for _, id := range p.snapshot.open {
		if p.From.TransactionID < id && id <= p.To.TransactionID {
			p.To.Pending = append(p.To.Pending, id)
		}
	}
}

// moved reports whether the page has all events of a pending transaction. It is called if not
// all late events fit into the page.
func (p *pager) moved(id int64) bool {
	return len(p.Late) > 0 && id < p.Late[len(p.Late)-1].TransactionID
}

// arenaBytes is the size of the memory blocks that payloads share. Sharing costs little memory,
// since payloads that are read together mostly become garbage together.
const arenaBytes = 64 << 10

// payloads copies the payloads of rows into shared blocks of memory.
type payloads struct {
	arena []byte
	size  int // of the events, in bytes
}

// keep returns a copy of a payload, nil for nil.
func (p *payloads) keep(payload []byte) []byte {
	if payload == nil {
		return nil
	}
	if cap(p.arena)-len(p.arena) < len(payload) {
		p.arena = make([]byte, 0, max(len(payload), min(2*cap(p.arena), arenaBytes)))
	}
	p.arena = append(p.arena, payload...)
	return slices.Clip(p.arena[len(p.arena)-len(payload):])
}

// Folded reads the events that are folded at `cursor` and whose position is greater than `after`,
// in the order of folding. This part of the log is immutable, except for erasures.
func Folded(ctx context.Context, q events.Querier, partition int, after events.Position, cursor Cursor, size *Size) (records []events.Record, err error) {
	args := append(append([]any{after.TransactionID, after.Offset}, cursor.Args()...), size.rows())
	rows, _ := q.Query(ctx, foldedSQL(partition), args...)
	defer rows.Close()
	var r row
	targets := r.targets()
	n := 0
	for r.size < size.Bytes && len(records) < size.Events && rows.Next() {
		if err := rows.Scan(targets...); err != nil {
			return nil, fmt.Errorf("read partition %d: %w", partition, err)
		}
		if len(records) == cap(records) {
			records = slices.Grow(records, min(max(1, 2*len(records)), size.Events-len(records)))
		}
		records = r.split(records)
		n++
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read partition %d: %w", partition, err)
	}
	size.learn(n, len(records), r.size)
	return records, nil
}

// foldedSQL returns the query of Folded, which is a range scan of the primary key.
func foldedSQL(partition int) string {
	return `SELECT ` + Columns + `
FROM badged.` + events.Topic(partition) + `
WHERE ` + After(1) + ` AND ` + UpTo(3) + `
ORDER BY transaction_id, "offset"
LIMIT $6`
}
