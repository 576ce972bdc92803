package eventbatch

import (
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/badged/badged/internal/pgwire"
)

// Table returns the name of the table with the messages of a topic.
func Table(topic string) string { return `badged."` + topic + `"` }

// Positions returns the name of the table with the positions of consumer groups in a
// topic.
func Positions(topic string) string { return `badged."` + topic + `_offsets"` }

// insertSQL appends messages in the order of the arrays; an empty metadata
// becomes null. The third array may be shorter: missing values are null. The
// arrays are unnested in the select list: in a FROM clause Postgres would
// materialize them first.
//
// The other columns have defaults.
func insertSQL(topic string) string {
	return `INSERT INTO ` + Table(topic) + ` (uuid, payload, metadata)
SELECT m.uuid, m.payload, nullif(m.metadata, '')::json
FROM (SELECT unnest($1::uuid[]) AS uuid, unnest($2::bytea[]) AS payload, unnest($3::text[]) AS metadata) AS m`
}

// insertBatchesSQL is insertSQL with the number of events of each message.
func insertBatchesSQL(topic string) string {
	return `INSERT INTO ` + Table(topic) + ` (uuid, payload, metadata, events)
SELECT m.uuid, m.payload, nullif(m.metadata, '')::json, m.events
FROM (SELECT unnest($1::uuid[]) AS uuid, unnest($2::bytea[]) AS payload, unnest($3::text[]) AS metadata, unnest($4::smallint[]) AS events) AS m`
}

// insertOwnSQL is insertBatchesSQL with a fifth array, which marks badged's own
// messages. Publishers may not set that.
func insertOwnSQL(topic string) string {
	return `INSERT INTO ` + Table(topic) + ` (uuid, payload, metadata, events, own)
SELECT m.uuid, m.payload, nullif(m.metadata, '')::json, m.events, coalesce(m.own, false)
FROM (SELECT unnest($1::uuid[]) AS uuid, unnest($2::bytea[]) AS payload, unnest($3::text[]) AS metadata, unnest($4::smallint[]) AS events, unnest($5::boolean[]) AS own) AS m`
}

// insertAtSQL is insertOwnSQL with the time $6 for all messages.
func insertAtSQL(topic string) string {
	return `INSERT INTO ` + Table(topic) + ` (uuid, payload, metadata, events, own, created_at)
SELECT m.uuid, m.payload, nullif(m.metadata, '')::json, coalesce(m.events, 1), coalesce(m.own, false), $6
FROM (SELECT unnest($1::uuid[]) AS uuid, unnest($2::bytea[]) AS payload, unnest($3::text[]) AS metadata, unnest($4::smallint[]) AS events, unnest($5::boolean[]) AS own) AS m`
}

// insertOneAtSQL is insertAtSQL for a single message, as most appends have: without
// arrays, Postgres needs less time.
func insertOneAtSQL(topic string) string {
	return `INSERT INTO ` + Table(topic) + ` (uuid, payload, metadata, events, own, created_at)
VALUES ($1, $2, $3::text::json, $4, $5, $6)`
}

// Columns are messages as the columns of the statements that append them.
type Columns struct {
	UUIDs    pgwire.UUIDs
	Payloads []string
	// metadata may be shorter: the rest have none.
	metadata []string
	// own marks events that only badged may write; nil if there are none.
	own []bool
	// events are the numbers of events, nil if each message has one.
	events []int16
	bytes  int // of all texts
}

// NewColumns returns no messages, with room for n.
func NewColumns(n int) *Columns {
	return &Columns{UUIDs: make(pgwire.UUIDs, 0, n), Payloads: make([]string, 0, n)}
}

// Add adds a message with one event. Metadata is a JSON object, or empty.
func (r *Columns) Add(key uuid.UUID, payload, metadata string) {
	r.UUIDs = append(r.UUIDs, key)
	r.Payloads = append(r.Payloads, payload)
	r.bytes += len(payload) + len(metadata)
	if metadata == "" {
		return
	}
	for len(r.metadata) < len(r.UUIDs)-1 {
		r.metadata = append(r.metadata, "")
	}
	r.metadata = append(r.metadata, metadata)
}

// MarkOwn marks the last message as one that only badged may write.
func (r *Columns) MarkOwn() {
	r.own = append(r.own, make([]bool, len(r.UUIDs)-len(r.own))...)
	r.own[len(r.own)-1] = true
}

// IsOwn reports whether badged wrote message i by itself.
func (r *Columns) IsOwn(i int) bool { return i < len(r.own) && r.own[i] }

// Packed returns messages with the same events, as many in each as fit. A single
// event stays as it is. Metadata of others is left out: it repeats what is in the
// events.
func (r *Columns) Packed() (*Columns, error) {
	if len(r.UUIDs) <= 1 {
		return r, nil
	}
	p := &Columns{}
	for begin, end := 0, 0; begin < len(r.UUIDs); begin = end {
		bytes := 0
		own := false
		for end = begin; end < len(r.UUIDs) && (end == begin || Fits(end-begin, bytes, len(r.Payloads[end]))); end++ {
			bytes += len(r.Payloads[end])
			own = own || r.IsOwn(end)
		}
		if end == begin+1 {
			metadata := ""
			if begin < len(r.metadata) {
				metadata = r.metadata[begin]
			}
			p.Add(r.UUIDs[begin], r.Payloads[begin], metadata)
		} else {
			// Not a key, whose version is 8.
			id, err := uuid.NewV7()
			if err != nil {
				return nil, fmt.Errorf("make a message id: %w", err)
			}
			p.Add(id, string(Pack(r.Payloads[begin:end])), "")
		}
		p.events = append(p.events, int16(end-begin))
		if own { // badged writes the others too
			p.MarkOwn()
		}
	}
	return p, nil
}

// one returns the arguments of insertOneAtSQL for the only message.
func (r *Columns) one(at time.Time) []any {
	var metadata *string
	if len(r.metadata) > 0 && r.metadata[0] != "" {
		metadata = &r.metadata[0]
	}
	events := int16(1)
	if r.events != nil {
		events = r.events[0]
	}
	return []any{[16]byte(r.UUIDs[0]), []byte(r.Payloads[0]), metadata, events, r.IsOwn(0), at}
}

// Size returns about how many bytes the arrays take in the Postgres protocol:
// each element has a length, each statement some overhead.
func (r *Columns) Size() int {
	return 512 + r.bytes + 20*len(r.UUIDs) + 4*(len(r.Payloads)+len(r.metadata))
}

// Insert returns the statement that appends the messages, and its arguments for
// pgx.
func (r *Columns) Insert(topic string) (sql string, args []any) {
	args = []any{r.UUIDs, pgwire.Bytes(r.Payloads), r.metadata}
	switch {
	case r.own != nil:
		events := r.events
		for len(events) < len(r.UUIDs) {
			events = append(events, 1)
		}
		return insertOwnSQL(topic), append(args, events, r.own)
	case r.events != nil:
		return insertBatchesSQL(topic), append(args, r.events)
	}
	return insertSQL(topic), args
}

// InsertAt returns the statement that appends the messages at a time, and its arguments
// for pgx.
func (r *Columns) InsertAt(topic string, at time.Time) (sql string, args []any) {
	if len(r.UUIDs) == 1 {
		return insertOneAtSQL(topic), r.one(at)
	}
	return insertAtSQL(topic), []any{r.Leading(), pgwire.Bytes(r.Payloads), r.metadata, r.events, r.own, at}
}

// Leading returns the first argument of Insert so that it reserves room for all.
func (r *Columns) Leading() pgwire.Leading {
	return pgwire.Leading{Array: [][16]byte(r.UUIDs), Bytes: r.Size()}
}

// InsertAnyDriver is Insert for any database/sql driver.
func (r *Columns) InsertAnyDriver(topic string) (sql string, args []any) {
	args = []any{r.UUIDs, pgwire.Bytes(r.Payloads), pgwire.ArrayLiteral(r.metadata)}
	if r.events == nil {
		return insertSQL(topic), args
	}
	counts := make([]string, len(r.events))
	for i, n := range r.events {
		counts[i] = strconv.Itoa(int(n))
	}
	return insertBatchesSQL(topic), append(args, pgwire.ArrayLiteral(counts))
}
