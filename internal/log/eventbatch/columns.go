package eventbatch

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Table returns the name of the table with the rows of a topic.
func Table(topic string) string { return `badged."` + topic + `"` }

// Positions returns the name of the table with the positions of the consumer groups of a topic.
func Positions(topic string) string { return `badged."` + topic + `_offsets"` }

// insertSQL appends messages in the order of the arrays; a message is one row of the log. The array
// of metadata may be shorter than the array of UUIDs: the remaining messages have no metadata. The
// array of event counts may be shorter too: the remaining messages have one event each. The
// statement calls unnest in the select list, since Postgres would materialize arrays that are
// unnested in a FROM clause.
//
// The statement writes only columns that publishers may write.
func insertSQL(topic string) string {
	return `INSERT INTO ` + Table(topic) + ` (uuid, payload, metadata, events)
SELECT m.uuid, m.payload, nullif(m.metadata, '')::json, coalesce(m.events, 1)
FROM (SELECT unnest($1::uuid[]) AS uuid, unnest($2::bytea[]) AS payload, unnest($3::text[]) AS metadata, unnest($4::smallint[]) AS events) AS m`
}

// insertAtSQL is insertSQL with two more parameters. $5 is an array of booleans: true marks a
// message of an event type reserved for badged. $6 is the time of all messages; null means the
// current time.
func insertAtSQL(topic string) string {
	return `INSERT INTO ` + Table(topic) + ` (uuid, payload, metadata, events, own, created_at)
SELECT m.uuid, m.payload, nullif(m.metadata, '')::json, coalesce(m.events, 1), coalesce(m.own, false), coalesce($6::timestamptz, clock_timestamp())
FROM (SELECT unnest($1::uuid[]) AS uuid, unnest($2::bytea[]) AS payload, unnest($3::text[]) AS metadata, unnest($4::smallint[]) AS events, unnest($5::boolean[]) AS own) AS m`
}

// insertOneAtSQL is insertAtSQL for a single message, without arrays: Postgres then inserts it
// faster. Most appends have a single message.
func insertOneAtSQL(topic string) string {
	return `INSERT INTO ` + Table(topic) + ` (uuid, payload, metadata, events, own, created_at)
VALUES ($1, $2, $3::text::json, $4, $5, $6)`
}

// Columns are messages to append, one slice for each column. The slices are arguments of insertSQL
// and its variants.
type Columns struct {
	uuids    [][16]byte
	payloads [][]byte
	// metadata may be shorter than uuids: the remaining messages have no metadata.
	metadata []string
	// own marks messages that only badged may write; nil if there are none.
	own []bool
	// events are the numbers of events; nil if each message has one event.
	events []int16
}

// NewColumns returns Columns without messages, with capacity for n.
func NewColumns(n int) *Columns {
	return &Columns{uuids: make([][16]byte, 0, n), payloads: make([][]byte, 0, n)}
}

// Add adds a message with one event. It retains the payload. metadata is a JSON object or "".
func (r *Columns) Add(key uuid.UUID, payload []byte, metadata string) {
	r.uuids = append(r.uuids, key)
	r.payloads = append(r.payloads, payload)
	if metadata == "" {
		return
	}
	for len(r.metadata) < len(r.uuids)-1 {
		r.metadata = append(r.metadata, "")
	}
	r.metadata = append(r.metadata, metadata)
}

// MarkOwn marks the last message as a message that only badged may write.
func (r *Columns) MarkOwn() {
	r.own = append(r.own, make([]bool, len(r.uuids)-len(r.own))...)
	r.own[len(r.own)-1] = true
}

func (r *Columns) isOwn(i int) bool { return i < len(r.own) && r.own[i] }

// Packed returns the same events, in the same order, in as few messages as possible. A message with
// a single event is unchanged. A message with several events has no metadata, since metadata only
// repeats what is in the events.
func (r *Columns) Packed() (*Columns, error) {
	if len(r.uuids) <= 1 {
		return r, nil
	}
	p := &Columns{}
	for begin, end := 0, 0; begin < len(r.uuids); begin = end {
		bytes := 0
		own := false
		for end = begin; end < len(r.uuids) && (end == begin || Fits(end-begin, bytes, len(r.payloads[end]))); end++ {
			bytes += len(r.payloads[end])
			own = own || r.isOwn(end)
		}
		if end == begin+1 {
			metadata := ""
			if begin < len(r.metadata) {
				metadata = r.metadata[begin]
			}
			p.Add(r.uuids[begin], r.payloads[begin], metadata)
		} else {
			// Event keys are UUIDs of version 8, so this id cannot equal an event key.
			id, err := uuid.NewV7()
			if err != nil {
				return nil, fmt.Errorf("make a message id: %w", err)
			}
			row, err := Pack(r.payloads[begin:end])
			if err != nil {
				return nil, err
			}
			p.Add(id, row, "")
		}
		p.events = append(p.events, int16(end-begin))
		if own { // badged writes all events of such a message
			p.MarkOwn()
		}
	}
	return p, nil
}

// queueRow returns the arguments of insertOneAtSQL for the only message.
func (r *Columns) queueRow(appendedAt time.Time) []any {
	var metadata *string
	if len(r.metadata) > 0 && r.metadata[0] != "" {
		metadata = &r.metadata[0]
	}
	events := int16(1)
	if r.events != nil {
		events = r.events[0]
	}
	return []any{r.uuids[0], r.payloads[0], metadata, events, r.isOwn(0), appendedAt}
}

// Insert returns the statement that appends the messages, and its arguments for pgx. appendedAt is
// the time of the messages; nil means the time of the statement.
func (r *Columns) Insert(topic string, appendedAt *time.Time) (sql string, args []any) {
	if appendedAt != nil && len(r.uuids) == 1 {
		return insertOneAtSQL(topic), r.queueRow(*appendedAt)
	}
	args = []any{r.uuids, r.payloads, r.metadata, r.events}
	if appendedAt != nil || r.own != nil {
		return insertAtSQL(topic), append(args, r.own, appendedAt)
	}
	return insertSQL(topic), args
}

// InsertAnyDriver is Insert for any database driver, and for any query mode of pgx: it passes
// the arrays as text. The messages get the time of the statement. Marks of [Columns.MarkOwn]
// are ignored.
func (r *Columns) InsertAnyDriver(topic string) (sql string, args []any) {
	keys, payloads, counts := make([]string, len(r.uuids)), make([]string, len(r.payloads)), make([]string, len(r.events))
	for i := range r.uuids {
		keys[i], payloads[i] = uuid.UUID(r.uuids[i]).String(), `\x`+hex.EncodeToString(r.payloads[i])
	}
	for i, n := range r.events {
		counts[i] = strconv.Itoa(int(n))
	}
	return insertSQL(topic), []any{arrayLiteral(keys), arrayLiteral(payloads), arrayLiteral(r.metadata), arrayLiteral(counts)}
}

var escaper = strings.NewReplacer(`"`, `\"`, `\`, `\\`)

// arrayLiteral returns the Postgres array literal of texts.
func arrayLiteral(texts []string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, s := range texts {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('"')
		_, _ = escaper.WriteString(&b, s)
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}
