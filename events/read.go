package events

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/eventbatch"
	"github.com/badged/badged/internal/eventlog"
)

// Position is a position in the log of one partition: right after the row with these
// ids. The zero position is the start. Positions are ordered by transaction first:
// offsets alone are not the order of the log.
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
		return Position{}, fmt.Errorf("%q is no position: it must be two numbers such as 1234/56", text)
	}
	return Position{TransactionID: t, Offset: o}, nil
}

// Before reports whether p comes before q.
func (p Position) Before(q Position) bool {
	return p.TransactionID < q.TransactionID || p.TransactionID == q.TransactionID && p.Offset < q.Offset
}

// Place is where an event is in the log of one partition: its row, and its index
// among the events of the row, from 0 on.
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
		return Place{}, fmt.Errorf("%q is no place in the log: it must be two numbers such as 1234/56, or three such as 1234/56/7", text)
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
	// UUID is the message id of the row. If the row has a single event that badged
	// appended, it is the event's key.
	UUID uuid.UUID
	// Payload is the event as CloudEvents JSON. It may be invalid if something
	// other than badged appended it.
	Payload []byte
	// Damage is why the row could not be taken apart; nil if it was. Payload is
	// then the row as it is, nil if it is too large.
	Damage error
	// Own is set if badged itself wrote the row, as it must have if
	// [Event.CheckReserved] fails.
	Own bool
	// AppendedAt is when the statement appended it. Readers see it once its
	// transaction has committed.
	AppendedAt time.Time
}

// Querier runs queries: a pgx connection, pool or transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// ProjectorGroup is the watermill consumer group under which the positions of
// the projector are kept.
const ProjectorGroup = "projector"

// NotifierGroup is the watermill consumer group under which the positions of the
// notifier are kept.
const NotifierGroup = "badged_notifier"

// PositionOf returns how far a consumer group has read a partition, or the zero
// position if it never has.
func PositionOf(ctx context.Context, q Querier, partition int, consumerGroup string) (Position, error) {
	var p Position
	err := q.QueryRow(ctx, `SELECT coalesce(max(last_processed_transaction_id::text::bigint), 0), coalesce(max(offset_acked), 0)
FROM `+eventbatch.Positions(Topic(partition))+` WHERE consumer_group = $1`, consumerGroup).Scan(&p.TransactionID, &p.Offset)
	if err != nil {
		return Position{}, fmt.Errorf("read the position of %s in partition %d: %w", consumerGroup, partition, eventlog.NotMigrated(err))
	}
	return p, nil
}
