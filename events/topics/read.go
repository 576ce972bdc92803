package topics

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/log/eventbatch"
	"github.com/badged/badged/internal/log/tombstones"
)

// errDeleted means that the position of the consumer group, a row of the table of positions, was
// deleted.
var errDeleted = errors.New("the position was deleted; subscribe again to start at the beginning of the log")

type logRow struct {
	events.Position
	uuid    uuid.UUID
	payload []byte // nil if it is too large, or null
	bytes   int
}

// Limits of one read of the log, in rows and in stored bytes.
const (
	pageRows  = 100
	pageBytes = 1 << 20
)

// read returns the next rows after the position of the group, up to the position of the projector.
// It omits the rows of pending transactions, which the projector has not folded. When the projector
// folds these rows, it first moves them to places directly after its own position. So no row
// appears later at a place that the group has already passed.
func (s *subscription) read(ctx context.Context, conn *pgx.Conn) ([]logRow, error) {
	var end, position events.Position
	var pending []int64
	if err := conn.QueryRow(ctx, `SELECT p.last_processed_transaction_id::text::bigint, p.offset_acked, p.pending::text[]::bigint[],
    g.last_processed_transaction_id::text::bigint, g.offset_acked
FROM `+eventbatch.Positions(s.topic)+` AS p, `+eventbatch.Positions(s.topic)+` AS g
WHERE p.consumer_group = $1 AND g.consumer_group = $2`, events.ProjectorGroup, s.cfg.ConsumerGroup).
		Scan(&end.TransactionID, &end.Offset, &pending, &position.TransactionID, &position.Offset); errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("find the position of consumer group %s: %w", s.cfg.ConsumerGroup, errDeleted)
	} else if err != nil {
		return nil, fmt.Errorf("find the position of consumer group %s: %w", s.cfg.ConsumerGroup, err)
	}
	if !position.Before(end) {
		return nil, nil
	}
	rows, _ := conn.Query(ctx, pageSQL(s.topic), position.TransactionID, position.Offset, end.TransactionID, end.Offset, pending)
	var page []logRow
	var r logRow
	_, err := pgx.ForEachRow(rows, []any{&r.TransactionID, &r.Offset, (*[16]byte)(&r.uuid), &r.payload, &r.bytes}, func() error {
		page = append(page, r)
		return nil
	})
	return page, err
}

// pageSQL returns a query for the next rows: at most pageRows, and no row after the row with which
// the total size reaches pageBytes. The conditions on transaction_id alone are redundant, but with
// them Postgres skips the tables of old and of later ranges of the log.
func pageSQL(topic string) string {
	return fmt.Sprintf(`SELECT transaction_id::text::bigint, "offset", uuid, %s, coalesce(octet_length(payload), 0)
FROM (
    SELECT transaction_id, "offset", uuid, payload, coalesce(sum(least(octet_length(payload), 8388608)) OVER (
        ORDER BY transaction_id, "offset" ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS bytes_before
    FROM (
        SELECT transaction_id, "offset", uuid, payload
        FROM %s
        WHERE (transaction_id, "offset") > ($1::bigint::text::xid8, $2::bigint) AND transaction_id >= $1::bigint::text::xid8
          AND (transaction_id, "offset") <= ($3::bigint::text::xid8, $4::bigint) AND transaction_id <= $3::bigint::text::xid8
          AND transaction_id <> ALL ($5::bigint[]::text[]::xid8[])
        ORDER BY transaction_id, "offset"
        LIMIT %d) AS first) AS summed
WHERE bytes_before < %d
ORDER BY summed.transaction_id, summed."offset"`, eventbatch.PayloadSQL, eventbatch.Table(topic), pageRows, pageBytes)
}

// messages returns the events of a row as messages. It omits an event if all its users were
// erased.
func (s *subscription) messages(r *logRow) []*message.Message {
	payloads, err := eventbatch.Unpack(r.payload)
	if r.payload == nil && r.bytes > 0 {
		err = fmt.Errorf("the row has %d bytes; at most %d are read", r.bytes, eventbatch.MaxRow)
	}
	if err != nil {
		return []*message.Message{s.message(r, 0, r.payload, err)}
	}
	all := make([]*message.Message, 0, len(payloads))
	for i, payload := range payloads {
		if rest, ok := tombstones.Parse(payload); ok && rest.Event == nil {
			continue
		}
		all = append(all, s.message(r, i, tombstones.EventIn(payload), nil))
	}
	return all
}

// message returns one event of a row as a message; index counts the events of the row from 0.
// damage is the reason why the row could not be split into events, nil if it was split.
func (s *subscription) message(r *logRow, index int, payload []byte, damage error) *message.Message {
	var e events.Event
	if damage == nil {
		e, damage = events.Decode(payload)
	}
	metadata := message.Metadata{
		MetadataContentType: events.ContentType,
		MetadataPartition:   strconv.Itoa(s.partition),
		MetadataPlace:       events.Place{Position: r.Position, Index: index}.String(),
	}
	id := e.Key()
	if damage != nil {
		metadata[MetadataContentType], metadata[MetadataDamage] = "application/octet-stream", damage.Error()
		// The event has no key. Derive the id from the row, so that repeated deliveries have the
		// same id.
		id = uuid.NewSHA1(r.uuid, []byte(strconv.Itoa(index)))
	}
	if e.TraceParent != "" {
		metadata["traceparent"] = e.TraceParent
	}
	if e.TraceState != "" {
		metadata["tracestate"] = e.TraceState
	}
	msg := message.NewMessage(id.String(), payload)
	msg.Metadata = metadata
	return msg
}
