package events

import (
	"encoding/json"
	"fmt"

	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

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
// The other columns have defaults, and publishers may not set them.
func insertSQL(topic string) string {
	return `INSERT INTO ` + messagesTable(topic) + ` (uuid, payload, metadata)
SELECT m.uuid, m.payload, nullif(m.metadata, '')::json
FROM (SELECT unnest($1::uuid[]) AS uuid, unnest($2::json[]) AS payload, unnest($3::text[]) AS metadata) AS m`
}

// insertOwnSQL is insertSQL with a fourth array, which marks badged's own messages.
func insertOwnSQL(topic string) string {
	return `INSERT INTO ` + messagesTable(topic) + ` (uuid, payload, metadata, own)
SELECT m.uuid, m.payload, nullif(m.metadata, '')::json, coalesce(m.own, false)
FROM (SELECT unnest($1::uuid[]) AS uuid, unnest($2::json[]) AS payload, unnest($3::text[]) AS metadata, unnest($4::boolean[]) AS own) AS m`
}

// insertAtSQL is insertOwnSQL with the time $5 for all messages.
func insertAtSQL(topic string) string {
	return `INSERT INTO ` + messagesTable(topic) + ` (uuid, payload, metadata, own, created_at)
SELECT m.uuid, m.payload, nullif(m.metadata, '')::json, coalesce(m.own, false), $5
FROM (SELECT unnest($1::uuid[]) AS uuid, unnest($2::json[]) AS payload, unnest($3::text[]) AS metadata, unnest($4::boolean[]) AS own) AS m`
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
	return watermillsql.Query{Query: insertSQL(topic), Args: rows.literals()}, nil
}

// SelectQuery implements the watermill-sql schema adapter.
func (s Schema) SelectQuery(topic, consumerGroup string, offsets watermillsql.OffsetsAdapter) watermillsql.Query {
	next := offsets.NextOffsetQuery(topic, consumerGroup)
	return watermillsql.Query{
		Query: `WITH last_processed AS (` + next.Query + `)
SELECT "offset", transaction_id, uuid, payload, metadata
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

// rows are messages as the columns of insertSQL.
type rows struct {
	uuids              pgwire.UUIDs
	payloads, metadata []string
	// own marks events that only badged may write; nil if there are none.
	own   []bool
	bytes int // of all texts
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

// size returns about how many bytes the arrays take in the Postgres protocol:
// each element has a length, each statement some overhead.
func (r *rows) size() int {
	return 512 + r.bytes + 20*len(r.uuids) + 4*(len(r.payloads)+len(r.metadata))
}

// arrays returns the arguments of insertSQL for pgx.
func (r *rows) arrays() []any {
	if r.own != nil {
		return []any{r.uuids, r.payloads, r.metadata, r.own}
	}
	return []any{r.uuids, r.payloads, r.metadata}
}

// literals returns the arguments of insertSQL for any database/sql driver.
func (r *rows) literals() []any {
	return []any{r.uuids, pgwire.ArrayLiteral(r.payloads), pgwire.ArrayLiteral(r.metadata)}
}
