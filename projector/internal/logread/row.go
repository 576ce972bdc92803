package logread

import (
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/eventbatch"
)

// Columns are the columns of a row of the log that [Scan] scans: as they are, since
// converting a row costs more than finding it.
const Columns = `transaction_id, "offset", uuid, created_at, own, ` + eventbatch.PayloadSQL + `, octet_length(payload)`

// Split returns the events of a row, which r is without index. If they cannot be
// told apart it returns r with the reason; bytes is then the length of the row.
// The payloads share memory with that of r.
func Split(r events.Record, bytes int) []events.Record { return split(nil, r, bytes) }

// split appends the events of a row to records.
func split(records []events.Record, r events.Record, bytes int) []events.Record {
	if r.Payload == nil {
		if bytes > 0 {
			r.Damage = fmt.Errorf("the row has %d bytes; at most %d are read", bytes, eventbatch.MaxRow)
		}
		return append(records, r)
	}
	if len(r.Payload) > 0 && r.Payload[0] == '{' { // by far the most frequent where rows are small
		return append(records, r)
	}
	all, err := eventbatch.Unpack(r.Payload)
	if err != nil {
		r.Damage = err
		return append(records, r)
	}
	records = slices.Grow(records, len(all))
	for i, payload := range all {
		r.Index, r.Payload = i, payload
		records = append(records, r)
	}
	return records
}

// Scan calls visit with the events of each row of a query, whose columns are
// Columns.
func Scan(rows pgx.Rows, visit func([]events.Record) error) error {
	var r row
	var records []events.Record
	_, err := pgx.ForEachRow(rows, r.targets(), func() error {
		r.arena = nil // visit may keep the payloads
		records = r.split(records[:0])
		return visit(records)
	})
	return err
}

// Size limits a page to about that many events, and bytes of their payloads. Rows
// are folded whole, so a page may exceed both by a row. Use one Size for pages
// that follow each other: it learns how large their rows are, so that Postgres
// does not send many in vain.
type Size struct {
	Events, Bytes int
	// perRow and bytesPerRow describe the last page; 0 if there was none.
	perRow, bytesPerRow int
}

// rows returns how many rows to ask for.
func (s *Size) rows() int {
	return max(1, min(s.Events, (s.Events+s.perRow)/max(1, s.perRow), (s.Bytes+s.bytesPerRow)/max(1, s.bytesPerRow)))
}

// learn notes what was read.
func (s *Size) learn(rows, events, bytes int) {
	if rows > 0 {
		s.perRow, s.bytesPerRow = events/rows, bytes/rows
	}
}
