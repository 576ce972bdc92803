package events

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Position is a place in the log of one partition: right after the event with these
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

// Record is one row of the log.
type Record struct {
	Position Position
	// UUID is the message id. It is the event's key if badged appended it.
	UUID uuid.UUID
	// Payload is the event as CloudEvents JSON. It may be invalid if something
	// other than badged appended it.
	Payload []byte
	// Own is set if badged itself wrote the event, as it must have for a
	// [ConversationExpired].
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

// PositionOf returns how far a consumer group has read a partition, or the zero
// position if it never has.
func PositionOf(ctx context.Context, q Querier, partition int, consumerGroup string) (Position, error) {
	var p Position
	err := q.QueryRow(ctx, `SELECT coalesce(max(last_processed_transaction_id::text::bigint), 0), coalesce(max(offset_acked), 0)
FROM `+offsetsTable(Topic(partition))+` WHERE consumer_group = $1`, consumerGroup).Scan(&p.TransactionID, &p.Offset)
	if err != nil {
		return Position{}, fmt.Errorf("read the position of %s in partition %d: %w", consumerGroup, partition, notMigrated(err))
	}
	return p, nil
}
