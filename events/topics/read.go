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

// errDeleted means that the row with the position of the consumer group was deleted.
var errDeleted = errors.New("it was deleted; subscribe again to start at the beginning of the log")

// logRow is a row of the log.
type logRow struct {
	events.Position
	uuid    uuid.UUID
	payload []byte // nil if it is too large, or null
	bytes   int
}

// Limits of one read. A row is unpacked only when it is delivered.
const (
	pageRows  = 100
	pageBytes = 1 << 20
)

// read returns rows that are folded, after the position of the group. When the projector folds
// the rows of a pending transaction, it moves them to places directly after its own position.
// So the log up to the projector's position, without pending transactions, does not change,
// and no row can appear before a row that was read.
func (s *subscription) read(ctx context.Context, conn *pgx.Conn) ([]logRow, error) {
	var end, at events.Position
	var pending []int64
	if err := conn.QueryRow(ctx, `SELECT p.last_processed_transaction_id::text::bigint, p.offset_acked, p.pending::text[]::bigint[],
    g.last_processed_transaction_id::text::bigint, g.offset_acked
FROM `+eventbatch.Positions(s.topic)+` AS p, `+eventbatch.Positions(s.topic)+` AS g
WHERE p.consumer_group = $1 AND g.consumer_group = $2`, events.ProjectorGroup, s.cfg.ConsumerGroup).
		Scan(&end.TransactionID, &end.Offset, &pending, &at.TransactionID, &at.Offset); errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("find the position of consumer group %s: %w", s.cfg.ConsumerGroup, errDeleted)
	} else if err != nil {
		return nil, fmt.Errorf("find the position of consumer group %s: %w", s.cfg.ConsumerGroup, err)
	}
	if !at.Before(end) {
		return nil, nil
	}
	rows, _ := conn.Query(ctx, pageSQL(s.topic), at.TransactionID, at.Offset, end.TransactionID, end.Offset, pending)
	var page []logRow
	var r logRow
	_, err := pgx.ForEachRow(rows, []any{&r.TransactionID, &r.Offset, (*[16]byte)(&r.uuid), &r.payload, &r.bytes}, func() error {
		page = append(page, r)
		return nil
	})
	return page, err
}

// pageSQL reads rows until their size exceeds pageBytes. The conditions on transaction_id
// alone follow from the other conditions; they let Postgres skip ranges of the log.
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

// messages returns the events of a row as messages. It omits events whose users were all
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

// message returns the event at an index of a row as a message. damage is the reason why the
// row could not be unpacked, nil if it was.
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
		// The event has no key. Derive an id, so that the same row always gives the same id.
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
