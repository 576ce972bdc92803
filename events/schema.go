package events

import (
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"strings"

	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
)

// Schema is the watermill-sql schema of the log: stock publishers and
// subscribers run on it unchanged, with InitializeSchema and
// AutoInitializeSchema left off, since migrations own the tables.
//
// It differs from the default in that its insert takes arrays, whatever the
// number of messages, and its select compares rows, which is one index range
// scan at any backlog where the default's OR reads and sorts the whole of it.
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

// insertSQL appends messages in the order of the arrays; an empty metadata is
// null, and so are those after the last that is not. The arrays are unnested side
// by side in the list of what is selected: as a function of a FROM clause they
// would be put aside as a whole first.
func insertSQL(topic string) string {
	return `INSERT INTO ` + messagesTable(topic) + ` (uuid, payload, metadata, transaction_id)
SELECT m.uuid, m.payload, nullif(m.metadata, '')::json, pg_current_xact_id()
FROM (SELECT unnest($1::uuid[]) AS uuid, unnest($2::json[]) AS payload, unnest($3::text[]) AS metadata) AS m`
}

// InsertQuery implements the watermill-sql schema adapter. No messages are an
// error: the query would do nothing, and whoever asks for it expects something.
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

// rows are messages as columns, the way insertSQL takes them.
type rows struct {
	uuids              uuids
	payloads, metadata []string
	bytes              int // of the texts
}

func newRows(n int) *rows {
	return &rows{uuids: make(uuids, 0, n), payloads: make([]string, 0, n)}
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

// size is about what they take on their way to Postgres, in bytes: each element
// goes with its length, and some more goes with each statement.
func (r *rows) size() int {
	return 512 + r.bytes + 20*len(r.uuids) + 4*(len(r.payloads)+len(r.metadata))
}

// arrays are the arguments of insertSQL for pgx.
func (r *rows) arrays() []any { return []any{r.uuids, r.payloads, r.metadata} }

// literals are the arguments of insertSQL for any database/sql driver.
func (r *rows) literals() []any {
	return []any{r.uuids, arrayLiteral(r.payloads), arrayLiteral(r.metadata)}
}

// uuids are sent as the 16 bytes that each is, where the type of the parameter
// is known before.
type uuids [][16]byte

// Value implements [driver.Valuer]: the array literal, for drivers and modes of
// pgx that send texts.
func (u uuids) Value() (driver.Value, error) {
	texts := make([]string, len(u))
	for i := range u {
		texts[i] = uuid.UUID(u[i]).String()
	}
	return arrayLiteral(texts), nil
}

// arrayLiteral returns the Postgres array literal of texts.
func arrayLiteral(texts []string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, s := range texts {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('"')
		for {
			j := strings.IndexAny(s, `"\`)
			if j < 0 {
				break
			}
			b.WriteString(s[:j])
			b.WriteByte('\\')
			b.WriteByte(s[j])
			s = s[j+1:]
		}
		b.WriteString(s)
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}
