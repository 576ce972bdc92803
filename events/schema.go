package events

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/badged/badged/internal/eventbatch"
	"github.com/badged/badged/internal/pgwire"
)

// Schema is the watermill-sql schema of the log: stock publishers and
// subscribers run on it unchanged, with InitializeSchema and
// AutoInitializeSchema left off, since migrations own the tables.
//
// It differs from the default in two ways. Its insert takes arrays, whatever
// the number of messages. Its select compares rows, which is one index range
// scan at any backlog, where the default's OR reads and sorts the whole
// backlog.
type Schema struct {
	watermillsql.DefaultPostgreSQLSchema
}

// NewSchema returns the schema of the log. batchSize is the most messages that
// a stock subscriber reads at once; 0 means 100.
func NewSchema(batchSize int) Schema {
	if batchSize == 0 {
		batchSize = 100
	}
	return Schema{watermillsql.DefaultPostgreSQLSchema{
		GenerateMessagesTableName: messagesTable,
		SubscribeBatchSize:        batchSize,
	}}
}

// NewOffsets returns the stock offsets adapter on the log's tables, for
// consumers beside the projector. Each has a consumer group of its own.
func NewOffsets() watermillsql.DefaultPostgreSQLOffsetsAdapter {
	return watermillsql.DefaultPostgreSQLOffsetsAdapter{
		GenerateMessagesOffsetsTableName: offsetsTable,
	}
}

func messagesTable(topic string) string { return `badged."` + topic + `"` }

func offsetsTable(topic string) string { return `badged."` + topic + `_offsets"` }

// insertSQL appends messages in the order of the arrays; an empty metadata
// becomes null. The third array may be shorter: missing values are null. The
// arrays are unnested in the select list: in a FROM clause Postgres would
// materialize them first.
//
// The other columns have defaults.
func insertSQL(topic string) string {
	return `INSERT INTO ` + messagesTable(topic) + ` (uuid, payload, metadata)
SELECT m.uuid, m.payload, nullif(m.metadata, '')::json
FROM (SELECT unnest($1::uuid[]) AS uuid, unnest($2::bytea[]) AS payload, unnest($3::text[]) AS metadata) AS m`
}

// insertBatchesSQL is insertSQL with the number of events of each message.
func insertBatchesSQL(topic string) string {
	return `INSERT INTO ` + messagesTable(topic) + ` (uuid, payload, metadata, events)
SELECT m.uuid, m.payload, nullif(m.metadata, '')::json, m.events
FROM (SELECT unnest($1::uuid[]) AS uuid, unnest($2::bytea[]) AS payload, unnest($3::text[]) AS metadata, unnest($4::smallint[]) AS events) AS m`
}

// insertOwnSQL is insertBatchesSQL with a fifth array, which marks badged's own
// messages. Publishers may not set that.
func insertOwnSQL(topic string) string {
	return `INSERT INTO ` + messagesTable(topic) + ` (uuid, payload, metadata, events, own)
SELECT m.uuid, m.payload, nullif(m.metadata, '')::json, m.events, coalesce(m.own, false)
FROM (SELECT unnest($1::uuid[]) AS uuid, unnest($2::bytea[]) AS payload, unnest($3::text[]) AS metadata, unnest($4::smallint[]) AS events, unnest($5::boolean[]) AS own) AS m`
}

// insertAtSQL is insertOwnSQL with the time $6 for all messages.
func insertAtSQL(topic string) string {
	return `INSERT INTO ` + messagesTable(topic) + ` (uuid, payload, metadata, events, own, created_at)
SELECT m.uuid, m.payload, nullif(m.metadata, '')::json, coalesce(m.events, 1), coalesce(m.own, false), $6
FROM (SELECT unnest($1::uuid[]) AS uuid, unnest($2::bytea[]) AS payload, unnest($3::text[]) AS metadata, unnest($4::smallint[]) AS events, unnest($5::boolean[]) AS own) AS m`
}

// insertOneAtSQL is insertAtSQL for a single message, as most appends have: without
// arrays, Postgres needs less time.
func insertOneAtSQL(topic string) string {
	return `INSERT INTO ` + messagesTable(topic) + ` (uuid, payload, metadata, events, own, created_at)
VALUES ($1, $2, $3::text::json, $4, $5, $6)`
}

// InsertQuery implements the watermill-sql schema adapter. No messages are an
// error: the query would have no effect.
func (s Schema) InsertQuery(topic string, msgs message.Messages) (watermillsql.Query, error) {
	if len(msgs) == 0 {
		return watermillsql.Query{}, fmt.Errorf("insert into topic %s: no messages", topic)
	}
	rows := newRows(len(msgs))
	for _, msg := range msgs {
		key, err := uuid.Parse(msg.UUID)
		if err != nil {
			return watermillsql.Query{}, fmt.Errorf("insert into topic %s: the UUID of message %q: %w; take that of events.Event.Key, or a new one", topic, msg.UUID, err)
		}
		var metadata string
		if len(msg.Metadata) > 0 {
			b, err := json.Marshal(msg.Metadata)
			if err != nil {
				return watermillsql.Query{}, fmt.Errorf("encode metadata of message %s: %w", msg.UUID, err)
			}
			metadata = string(b)
		}
		rows.add(key, string(msg.Payload), metadata)
	}
	sql, args := rows.insertAnyDriver(topic)
	return watermillsql.Query{Query: sql, Args: args}, nil
}

// SelectQuery implements the watermill-sql schema adapter.
func (s Schema) SelectQuery(topic, consumerGroup string, offsets watermillsql.OffsetsAdapter) watermillsql.Query {
	next := offsets.NextOffsetQuery(topic, consumerGroup)
	return watermillsql.Query{
		Query: `WITH last_processed AS (` + next.Query + `)
SELECT "offset", transaction_id, uuid, ` + eventbatch.PayloadSQL + `, metadata
FROM ` + messagesTable(topic) + `
WHERE (transaction_id, "offset") >
      ((SELECT last_processed_transaction_id FROM last_processed), (SELECT offset_acked FROM last_processed))
  AND transaction_id >= (SELECT last_processed_transaction_id FROM last_processed)
  AND transaction_id < pg_snapshot_xmin(pg_current_snapshot())
ORDER BY transaction_id, "offset"
LIMIT ` + fmt.Sprint(s.SubscribeBatchSize),
		Args: next.Args,
	}
}

// UnmarshalMessage implements the watermill-sql schema adapter. A row with several
// events is one message with all of them, whose metadata has the content type. A
// row that cannot be decompressed is delivered as it is, with content type
// application/octet-stream: an error would stop the subscriber there for ever. A
// row that is too large is delivered empty.
func (s Schema) UnmarshalMessage(scanner watermillsql.Scanner) (watermillsql.Row, error) {
	row, err := s.DefaultPostgreSQLSchema.UnmarshalMessage(scanner)
	if err != nil {
		return row, err
	}
	if row.Msg.Metadata == nil { // JSON null
		row.Msg.Metadata = message.Metadata{}
	}
	switch text, err := eventbatch.Plain(row.Msg.Payload); {
	case err != nil:
		row.Msg.Metadata.Set(MetadataContentType, "application/octet-stream")
	case eventbatch.IsBatch(text):
		row.Msg.Payload = text
		row.Msg.Metadata.Set(MetadataContentType, eventbatch.ContentType)
	default:
		row.Msg.Payload = text
	}
	return row, nil
}

// rows are messages as the columns of insertSQL.
type rows struct {
	uuids              pgwire.UUIDs
	payloads, metadata []string
	// own marks events that only badged may write; nil if there are none.
	own []bool
	// events are the numbers of events, nil if each message has one.
	events []int16
	bytes  int // of all texts
}

func newRows(n int) *rows {
	return &rows{uuids: make(pgwire.UUIDs, 0, n), payloads: make([]string, 0, n)}
}

func (r *rows) add(key uuid.UUID, payload, metadata string) {
	r.uuids = append(r.uuids, key)
	r.payloads = append(r.payloads, payload)
	r.bytes += len(payload) + len(metadata)
	if metadata == "" {
		return
	}
	for len(r.metadata) < len(r.uuids)-1 {
		r.metadata = append(r.metadata, "")
	}
	r.metadata = append(r.metadata, metadata)
}

// markOwn marks the last message as one that only badged may write.
func (r *rows) markOwn() {
	r.own = append(r.own, make([]bool, len(r.uuids)-len(r.own))...)
	r.own[len(r.own)-1] = true
}

// isOwn reports whether badged wrote message i by itself.
func (r *rows) isOwn(i int) bool { return i < len(r.own) && r.own[i] }

// packed returns messages with the same events, as many in each as fit. A single
// event stays as it is. Metadata of others is left out: it repeats what is in the
// events.
func (r *rows) packed() (*rows, error) {
	if len(r.uuids) <= 1 {
		return r, nil
	}
	p := &rows{}
	for begin, end := 0, 0; begin < len(r.uuids); begin = end {
		bytes := 0
		for end = begin; end < len(r.uuids) && r.isOwn(end) == r.isOwn(begin) && (end == begin || eventbatch.Fits(end-begin, bytes, len(r.payloads[end]))); end++ {
			bytes += len(r.payloads[end])
		}
		if end == begin+1 {
			metadata := ""
			if begin < len(r.metadata) {
				metadata = r.metadata[begin]
			}
			p.add(r.uuids[begin], r.payloads[begin], metadata)
		} else {
			// Not a key, whose version is 8.
			id, err := uuid.NewV7()
			if err != nil {
				return nil, fmt.Errorf("make a message id: %w", err)
			}
			p.add(id, string(eventbatch.Pack(r.payloads[begin:end])), "")
		}
		p.events = append(p.events, int16(end-begin))
		if r.isOwn(begin) {
			p.markOwn()
		}
	}
	return p, nil
}

// one returns the arguments of insertOneAtSQL for the only message.
func (r *rows) one(at time.Time) []any {
	var metadata *string
	if len(r.metadata) > 0 && r.metadata[0] != "" {
		metadata = &r.metadata[0]
	}
	events := int16(1)
	if r.events != nil {
		events = r.events[0]
	}
	return []any{[16]byte(r.uuids[0]), []byte(r.payloads[0]), metadata, events, r.isOwn(0), at}
}

// size returns about how many bytes the arrays take in the Postgres protocol:
// each element has a length, each statement some overhead.
func (r *rows) size() int {
	return 512 + r.bytes + 20*len(r.uuids) + 4*(len(r.payloads)+len(r.metadata))
}

// insert returns the statement that appends the messages, and its arguments for
// pgx.
func (r *rows) insert(topic string) (sql string, args []any) {
	args = []any{r.uuids, pgwire.Bytes(r.payloads), r.metadata}
	switch {
	case r.own != nil:
		events := r.events
		for len(events) < len(r.uuids) {
			events = append(events, 1)
		}
		return insertOwnSQL(topic), append(args, events, r.own)
	case r.events != nil:
		return insertBatchesSQL(topic), append(args, r.events)
	}
	return insertSQL(topic), args
}

// insertAnyDriver is insert for any database/sql driver.
func (r *rows) insertAnyDriver(topic string) (sql string, args []any) {
	args = []any{r.uuids, pgwire.Bytes(r.payloads), pgwire.ArrayLiteral(r.metadata)}
	if r.events == nil {
		return insertSQL(topic), args
	}
	counts := make([]string, len(r.events))
	for i, n := range r.events {
		counts[i] = strconv.Itoa(int(n))
	}
	return insertBatchesSQL(topic), append(args, pgwire.ArrayLiteral(counts))
}
