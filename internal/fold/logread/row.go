package logread

import (
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/log/eventbatch"
)

// Columns are the columns of a row of the log that [Scan] scans. They have no casts: casting
// them would cost more than finding the row.
const Columns = `transaction_id, "offset", uuid, created_at, own, ` + eventbatch.PayloadSQL + `, octet_length(payload)`

// Split returns the events that are packed in the row r, each with its index in the row. bytes
// is the length of the stored payload. If the row cannot be unpacked, Split returns only r,
// with the reason in Damage. The returned payloads share memory with the payload of r.
func Split(r events.Record, bytes int) []events.Record { return split(nil, r, bytes) }

// split appends the events of a row to records, like Split.
func split(records []events.Record, r events.Record, bytes int) []events.Record {
	if r.Payload == nil {
		if bytes > 0 {
			r.Damage = fmt.Errorf("the row has %d bytes; at most %d are read", bytes, eventbatch.MaxRow)
		}
		return append(records, r)
	}
	if len(r.Payload) > 0 && r.Payload[0] == '{' { // one event; the most frequent case if rows are small
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

// Scan calls visit with the events of each row of a query. The query must select Columns.
// visit may retain the payloads, but not the slice of records.
func Scan(rows pgx.Rows, visit func([]events.Record) error) error {
	var r row
	var records []events.Record
	_, err := pgx.ForEachRow(rows, r.targets(), func() error {
		r.arena = nil // visit may retain the payloads
		records = r.split(records[:0])
		return visit(records)
	})
	return err
}

// Size limits a page (the result of one read) to about Events events and Bytes bytes of payloads.
// Rows are read whole, so a page may exceed both limits by one row. Pass the same Size for
// successive pages: it records how large rows are, so that the next query requests few rows that do
// not fit.
type Size struct {
	Events, Bytes int
	// perRow and bytesPerRow are the average events and bytes per row of the last page; 0 before
	// the first page.
	perRow, bytesPerRow int
}

// rows returns how many rows to request for the next page.
func (s *Size) rows() int {
	return max(1, min(s.Events, (s.Events+s.perRow)/max(1, s.perRow), (s.Bytes+s.bytesPerRow)/max(1, s.bytesPerRow)))
}

// learn records the size of a page that was read.
func (s *Size) learn(rows, events, bytes int) {
	if rows > 0 {
		s.perRow, s.bytesPerRow = events/rows, bytes/rows
	}
}
