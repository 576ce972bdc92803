package events

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/log/eventbatch"
)

// Position is a position in the log of one partition: directly after the row with this
// transaction id and offset. Positions are ordered by transaction id, then by offset. The zero
// position is the start of the log.
type Position struct {
	TransactionID int64
	Offset        int64
}

// String returns the position as text, such as "1234/56".
func (p Position) String() string { return fmt.Sprintf("%d/%d", p.TransactionID, p.Offset) }

// ParsePosition parses the text of [Position.String].
func ParsePosition(text string) (Position, error) {
	transaction, offset, ok := strings.Cut(text, "/")
	t, err := strconv.ParseInt(transaction, 10, 64)
	o, offsetErr := strconv.ParseInt(offset, 10, 64)
	if !ok || err != nil || offsetErr != nil || t < 0 || o < 0 {
		return Position{}, fmt.Errorf("%q is not a position: it must be two numbers such as 1234/56", text)
	}
	return Position{TransactionID: t, Offset: o}, nil
}

// Before reports whether p comes before q.
func (p Position) Before(q Position) bool {
	return p.TransactionID < q.TransactionID || p.TransactionID == q.TransactionID && p.Offset < q.Offset
}

// Place is the place of an event in the log of one partition: its row, and its index among the
// events of the row, from 0.
type Place struct {
	Position
	Index int
}

// String returns the place as text, such as "1234/56/7", or "1234/56" if the
// index is 0.
func (p Place) String() string {
	if p.Index == 0 {
		return p.Position.String()
	}
	return fmt.Sprintf("%s/%d", p.Position, p.Index)
}

// ParsePlace parses the text of [Place.String].
func ParsePlace(text string) (Place, error) {
	var place Place
	position, index := text, ""
	if i := strings.LastIndexByte(text, '/'); strings.Count(text, "/") == 2 {
		position, index = text[:i], text[i+1:]
	}
	place.Position, _ = ParsePosition(position)
	place.Index, _ = strconv.Atoi(index)
	if place.String() != text || place.Index < 0 {
		return Place{}, fmt.Errorf("%q is not a place in the log: it must be two numbers such as 1234/56, or three such as 1234/56/7", text)
	}
	return place, nil
}

// Before reports whether p comes before q.
func (p Place) Before(q Place) bool {
	return p.Position.Before(q.Position) || p.Position == q.Position && p.Index < q.Index
}

// Record is one event of the log.
type Record struct {
	Place
	// UUID is the message id of the row. If badged appended the row with only one event, UUID is
	// the key of the event.
	UUID uuid.UUID
	// Payload is the event as CloudEvents JSON. It may be invalid if something other than
	// badged appended the row.
	Payload []byte
	// Damage is the reason why the row could not be split into events, nil if it was split. If
	// Damage is set, Payload is the whole row as stored, or nil if the row is too large.
	Damage error
	// Own is true if badged itself wrote the row. Events for which [Event.CheckReserved] fails
	// are valid only in such rows.
	Own bool
	// AppendedAt is when the INSERT of the event ran. Readers see the event only after its
	// transaction has committed.
	AppendedAt time.Time
}

// Querier runs queries: a pgx connection, pool or transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// ProjectorGroup is the watermill consumer group with the positions of the projector.
const ProjectorGroup = "projector"

// NotifierGroup is the watermill consumer group with the positions of the notifier.
const NotifierGroup = "badged_notifier"

// PositionOf returns the position up to which a consumer group has read a partition, or the zero
// position if the group has not read anything.
func PositionOf(ctx context.Context, q Querier, partition int, consumerGroup string) (Position, error) {
	var p Position
	err := q.QueryRow(ctx, `SELECT coalesce(max(last_processed_transaction_id::text::bigint), 0), coalesce(max(offset_acked), 0)
FROM `+eventbatch.Positions(Topic(partition))+` WHERE consumer_group = $1`, consumerGroup).Scan(&p.TransactionID, &p.Offset)
	if err != nil {
		return Position{}, fmt.Errorf("read the position of %s in partition %d: %w", consumerGroup, partition, notMigrated(err))
	}
	return p, nil
}
