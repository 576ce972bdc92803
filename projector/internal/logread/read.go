package logread

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
)

// Page is what a batch folds next.
type Page struct {
	From, To Cursor
	// Records are in the order of folding. The first of them are late: their
	// positions are those to which the batch moves them.
	Records []events.Record
	// Late are the places where the late records are now.
	Late []events.Position
	// More is set if a limit cut the page: there may be more to read now.
	More bool
	// Waits is set if there are events after the page that are not read yet,
	// since a transaction before them has been open for a moment only.
	Waits bool
	// ReadAt is when the page was read, by the database's clock.
	ReadAt time.Time
}

// Next reads what follows a cursor: the events of pending transactions that
// have ended, then those after the position. It reads at most limit events,
// and no more once their payloads reach maxBytes.
func Next(ctx context.Context, q events.Querier, partition int, from Cursor, w *Watch, limit, maxBytes int) (Page, error) {
	rows, err := q.Query(ctx, nextSQL(partition, len(from.Pending) > 0), append(from.Args()[:argsOf(from)], limit)...)
	if err != nil {
		return Page{}, fmt.Errorf("read partition %d: %w", partition, err)
	}
	defer rows.Close()
	p := pager{Page: Page{From: from}, limit: limit, maxBytes: maxBytes, watch: w}
	if err := p.read(rows); err != nil {
		return Page{}, fmt.Errorf("read partition %d: %w", partition, err)
	}
	return p.Page, nil
}

// argsOf returns how many arguments of the cursor nextSQL takes.
func argsOf(c Cursor) int {
	if len(c.Pending) > 0 {
		return 3
	}
	return 2
}

// Kinds of rows of nextSQL, in their order.
const (
	rowSnapshot = iota
	rowLate
	rowNext
)

// nextSQL is one statement, and so has one snapshot, which is its first row:
// what it does not show after the position was open then. Rows of pending
// transactions are shown if these have committed. The columns are as they are:
// converting a row costs more than finding it.
func nextSQL(partition int, pending bool) string {
	table := `badged.` + events.Topic(partition)
	late, limit, within := "", 3, "false"
	if pending {
		limit = 4
		within = fmt.Sprintf(`EXISTS (SELECT FROM %s WHERE transaction_id = $1::bigint::text::xid8 AND "offset" > $2)`, table)
		late = fmt.Sprintf(`UNION ALL
(SELECT %d, transaction_id, "offset", uuid, payload, created_at, own, '' FROM %s
WHERE %s ORDER BY transaction_id, "offset" LIMIT $%d)
`, rowLate, table, Late(1), limit)
	}
	return fmt.Sprintf(`SELECT %d, '0'::xid8, 0::bigint, '00000000-0000-0000-0000-000000000000'::uuid, NULL::json, clock_timestamp(), %s, pg_current_snapshot()::text
%sUNION ALL
(SELECT %d, transaction_id, "offset", uuid, payload, created_at, own, '' FROM %s
WHERE %s ORDER BY transaction_id, "offset" LIMIT $%d)`, rowSnapshot, within, late, rowNext, table, After(1), limit)
}

// payloadColumn is where nextSQL and foldedSQL have the payload.
const payloadColumn = 4

// pager makes a page of rows.
type pager struct {
	Page
	limit, maxBytes int
	watch           *Watch

	snapshot snapshot
	// young are the open transactions for which the page waits.
	young []int64
	late  []events.Record
	next  []events.Record
	// within is set if the position is within a transaction, because a limit cut
	// a page there.
	within bool
	// cut is set if there are more late events than the page takes.
	cut bool
	payloads
}

func (p *pager) read(rows pgx.Rows) error {
	var kind int32
	var text string
	var r events.Record
	var id uint64
	row := []any{&kind, &id, &r.Position.Offset, (*[16]byte)(&r.UUID), nil, &r.AppendedAt, &r.Own, &text}
	for p.size < p.maxBytes && rows.Next() {
		if err := rows.Scan(row...); err != nil {
			return err
		}
		r.Position.TransactionID = int64(id)
		switch kind {
		case rowSnapshot:
			var err error
			if p.snapshot, err = parseSnapshot(text); err != nil {
				return err
			}
			p.ReadAt, p.within = r.AppendedAt, r.Own
			p.young = p.watch.young(&p.snapshot, p.From.TransactionID, time.Now())
			continue
		case rowLate:
			if p.within {
				p.cut = true
				continue
			}
			r.Payload = p.keep(rows.RawValues()[payloadColumn])
			p.late = append(p.late, r)
			continue
		}
		if len(p.late)+len(p.next) == p.limit {
			p.More = true
			break
		}
		if p.cut && r.Position.TransactionID != p.From.TransactionID {
			break // see arrange
		}
		if r.Position.TransactionID >= p.snapshot.xmax {
			break // an id that is not assigned yet: maintenance buries the event
		}
		if len(p.young) > 0 && p.young[0] < r.Position.TransactionID {
			p.Waits = true
			break
		}
		r.Payload = p.keep(rows.RawValues()[payloadColumn])
		p.next = append(p.next, r)
	}
	p.cut = p.cut || len(p.late) == p.limit || p.size >= p.maxBytes && len(p.next) == 0 && len(p.late) > 0
	p.More = p.More || p.cut || p.size >= p.maxBytes || len(p.late)+len(p.next) == p.limit
	rows.Close() // before Err: also drains what was left
	if err := rows.Err(); err != nil {
		return err
	}
	p.arrange()
	return nil
}

// arrange puts late events before the next ones, and sets the cursor after
// them. Late events get places between the position and the next transaction.
// Where the position is within a transaction, the rest of that comes first, and
// alone: events that a publisher has appended later must not overtake its late
// ones.
func (p *pager) arrange() {
	p.To = Cursor{Position: p.From.Position}
	p.Records = p.next
	if len(p.late) > 0 {
		p.Records = make([]events.Record, 0, len(p.late)+len(p.next))
		for _, r := range p.late {
			p.Late = append(p.Late, r.Position)
			p.To.Offset++
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

// moved reports whether the page has all events of a pending transaction,
// although it does not have those of all.
func (p *pager) moved(id int64) bool {
	return len(p.Late) > 0 && id < p.Late[len(p.Late)-1].TransactionID
}

// arenaBytes is the most memory that payloads share. Payloads that are read
// together mostly become garbage together.
const arenaBytes = 64 << 10

// payloads copies payloads out of rows.
type payloads struct {
	arena []byte
	size  int
}

// keep copies a payload; JSON is the same in binary and text format.
func (p *payloads) keep(payload []byte) []byte {
	if payload == nil {
		return nil
	}
	if cap(p.arena)-len(p.arena) < len(payload) {
		p.arena = make([]byte, 0, max(len(payload), min(2*cap(p.arena), arenaBytes)))
	}
	p.arena = append(p.arena, payload...)
	p.size += len(payload)
	return slices.Clip(p.arena[len(p.arena)-len(payload):])
}

// Folded reads what is folded at a cursor, from after a position on, in the
// order of folding: at most limit events, and no more once their payloads reach
// maxBytes. That part of the log does not change.
func Folded(ctx context.Context, q events.Querier, partition int, after events.Position, at Cursor, limit, maxBytes int) (records []events.Record, err error) {
	args := append([]any{after.TransactionID, after.Offset}, append(at.Args(), limit)...)
	rows, err := q.Query(ctx, foldedSQL(partition), args...)
	if err != nil {
		return nil, fmt.Errorf("read partition %d: %w", partition, err)
	}
	defer rows.Close()
	var kept payloads
	var r events.Record
	var id uint64
	row := []any{&id, &r.Position.Offset, (*[16]byte)(&r.UUID), &r.AppendedAt, nil, &r.Own}
	for kept.size < maxBytes && rows.Next() {
		if err := rows.Scan(row...); err != nil {
			return nil, fmt.Errorf("read partition %d: %w", partition, err)
		}
		r.Position.TransactionID = int64(id)
		r.Payload = kept.keep(rows.RawValues()[payloadColumn])
		if len(records) == cap(records) {
			records = slices.Grow(records, min(max(1, 2*len(records)), limit-len(records)))
		}
		records = append(records, r)
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read partition %d: %w", partition, err)
	}
	return records, nil
}

// foldedSQL is an index range scan of the primary key.
func foldedSQL(partition int) string {
	return `SELECT transaction_id, "offset", uuid, created_at, payload, own
FROM badged.` + events.Topic(partition) + `
WHERE ` + After(1) + ` AND ` + UpTo(3) + `
ORDER BY transaction_id, "offset"
LIMIT $6`
}
