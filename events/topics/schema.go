package topics

import (
	"encoding/json"
	"fmt"

	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/badged/badged/internal/log/eventbatch"
)

// Schema is the watermill-sql schema of the log. With it, the publishers and subscribers of
// watermill-sql work unchanged. Leave their InitializeSchema and AutoInitializeSchema off, since
// migrations create the tables.
//
// Schema differs from the default schema in two ways. Its INSERT has array parameters, so its text
// does not depend on the number of messages. Its SELECT compares (transaction_id, offset) as one
// row value, so that Postgres scans only the next rows of the index. The default schema combines
// two conditions by OR, for which Postgres reads and sorts the whole backlog.
type Schema struct {
	watermillsql.DefaultPostgreSQLSchema
}

// NewSchema returns the schema of the log. batchSize is the maximum number of messages that a
// watermill-sql subscriber reads at once; 0 means 100.
func NewSchema(batchSize int) Schema {
	if batchSize == 0 {
		batchSize = 100
	}
	return Schema{watermillsql.DefaultPostgreSQLSchema{
		GenerateMessagesTableName: eventbatch.Table,
		SubscribeBatchSize:        batchSize,
	}}
}

// NewOffsets returns watermill-sql's offsets adapter for the tables of the log. Each consumer
// needs a consumer group of its own, other than [events.ProjectorGroup].
func NewOffsets() watermillsql.DefaultPostgreSQLOffsetsAdapter {
	return watermillsql.DefaultPostgreSQLOffsetsAdapter{
		GenerateMessagesOffsetsTableName: eventbatch.Positions,
	}
}

// InsertQuery implements the watermill-sql schema adapter. It fails if there are no messages,
// since the query would have no effect.
func (s Schema) InsertQuery(topic string, msgs message.Messages) (watermillsql.Query, error) {
	if len(msgs) == 0 {
		return watermillsql.Query{}, fmt.Errorf("insert into topic %s: no messages", topic)
	}
	rows := eventbatch.NewColumns(len(msgs))
	for _, msg := range msgs {
		key, err := uuid.Parse(msg.UUID)
		if err != nil {
			return watermillsql.Query{}, fmt.Errorf("insert into topic %s: the UUID of message %q: %w; use the UUID of events.Event.Key, or a new one", topic, msg.UUID, err)
		}
		var metadata string
		if len(msg.Metadata) > 0 {
			b, err := json.Marshal(msg.Metadata)
			if err != nil {
				return watermillsql.Query{}, fmt.Errorf("encode metadata of message %s: %w", msg.UUID, err)
			}
			metadata = string(b)
		}
		rows.Add(key, msg.Payload, metadata)
	}
	sql, args := rows.InsertAnyDriver(topic)
	return watermillsql.Query{Query: sql, Args: args}, nil
}

// SelectQuery implements the watermill-sql schema adapter.
func (s Schema) SelectQuery(topic, consumerGroup string, offsets watermillsql.OffsetsAdapter) watermillsql.Query {
	next := offsets.NextOffsetQuery(topic, consumerGroup)
	return watermillsql.Query{
		Query: `WITH last_processed AS (` + next.Query + `)
SELECT "offset", transaction_id, uuid, ` + eventbatch.PayloadSQL + `, metadata
FROM ` + eventbatch.Table(topic) + `
WHERE (transaction_id, "offset") >
      ((SELECT last_processed_transaction_id FROM last_processed), (SELECT offset_acked FROM last_processed))
  AND transaction_id >= (SELECT last_processed_transaction_id FROM last_processed)
  AND transaction_id < pg_snapshot_xmin(pg_current_snapshot())
ORDER BY transaction_id, "offset"
LIMIT ` + fmt.Sprint(s.SubscribeBatchSize),
		Args: next.Args,
	}
}

// UnmarshalMessage implements the watermill-sql schema adapter. A row with several events becomes
// one message with all events, and the content type of the message says so. A row that cannot be
// decompressed is delivered as stored, with the content type application/octet-stream, since an
// error would stop the subscriber at this row forever. A row that is too large is delivered without
// its payload.
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
