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
	// Records are in the order of folding. A row is read with all its events. Late events come
	// first; they already have the positions to which the batch moves their rows.
	Records []events.Record
	// Late has the current positions of the late rows.
	Late []events.Position
	// More is set if a limit cut the page: there may be more to read now.
	More bool
	// Waits is set if there are events after the page that are not read yet because an earlier
	// transaction is still open, and younger than the patience of the [Watch].
	Waits bool
	// ReadAt is when the page was read, by the clock of the database.
	ReadAt time.Time
}

// Next reads what follows a cursor: first the events of pending transactions that have ended,
// then the events after the position. ADR 53 has the reasons.
func Next(ctx context.Context, q events.Querier, partition int, from Cursor, w *Watch, size *Size) (Page, error) {
	limit := size.rows()
	rows, err := q.Query(ctx, nextSQL(partition, len(from.Pending) > 0), append(from.Args()[:argsOf(from)], limit)...)
	if err != nil {
		return Page{}, fmt.Errorf("read partition %d: %w", partition, err)
	}
	defer rows.Close()
	p := pager{Page: Page{From: from}, limit: limit, maxEvents: size.Events, maxBytes: size.Bytes, watch: w}
	if err := p.read(rows); err != nil {
		return Page{}, fmt.Errorf("read partition %d: %w", partition, err)
	}
	size.learn(p.lateRows+p.nextRows, len(p.Records), p.size)
	return p.Page, nil
}

// argsOf returns how many arguments of the cursor nextSQL uses.
func argsOf(c Cursor) int {
	if len(c.Pending) > 0 {
		return 3
	}
	return 2
}

// Kinds of rows that nextSQL returns, in this order.
const (
	rowSnapshot = iota
	rowLate
	rowNext
)

// nextSQL returns one statement, so that all its rows come from one snapshot. The first row is
// that snapshot: every event after the position that the statement does not show belongs to a
// transaction that was open then. Rows of pending transactions appear if these have committed.
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
	// limit is the greatest number of rows that each part of the query returns.
	limit               int
	maxEvents, maxBytes int
	watch               *Watch

	snapshot snapshot
	// young has the open transactions for which the page waits.
	young              []int64
	late, next         []events.Record
	lateRows, nextRows int
	// within is set if the position is inside a transaction, because a limit ended the last
	// page there.
	within bool
	// cut is set if there may be more late events than fit into the page.
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

// arrange puts late events before the events that follow the position, and sets the new
// cursor. Late rows get positions between the old position and the next transaction. If the
// position is inside a transaction, the rest of this transaction comes first, without late
// events: events that a publisher appended later must not overtake the publisher's late
// events.
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

// moved reports whether the page has all events of a pending transaction. It is called only if
// not all late events fit into the page.
func (p *pager) moved(id int64) bool {
	return len(p.Late) > 0 && id < p.Late[len(p.Late)-1].TransactionID
}

// arenaBytes limits the memory that payloads share. Payloads that are read together mostly
// become garbage together.
const arenaBytes = 64 << 10

// payloads copies payloads of rows into shared memory.
type payloads struct {
	arena []byte
	size  int // of the events, in bytes
}

// keep copies a payload.
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

// Folded reads events that are folded at a cursor, after the position after, in the order of
// folding. This part of the log never changes.
func Folded(ctx context.Context, q events.Querier, partition int, after events.Position, at Cursor, size *Size) (records []events.Record, err error) {
	limit := size.rows()
	rows, err := q.Query(ctx, foldedSQL(partition), append([]any{after.TransactionID, after.Offset}, append(at.Args(), limit)...)...)
	if err != nil {
		return nil, fmt.Errorf("read partition %d: %w", partition, err)
	}
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
