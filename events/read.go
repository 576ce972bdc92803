package events

import (
	"context"
	"fmt"
	"slices"
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

// Batch is the result of a read of the log.
type Batch struct {
	Records []Record
	// More is set if a limit cut the batch: there may be more to read now.
	More bool
	// Hidden is set if more was appended that cannot be read yet: an older
	// transaction is open, which might still insert events before it.
	Hidden bool
}

// arenaBytes is the most memory that payloads share. Payloads that are read together
// mostly become garbage together.
const arenaBytes = 64 << 10

// Read returns records of a partition after a position, in order: at most limit, and
// no more once their payloads reach maxBytes. It stops before anything that an open
// transaction might still precede, so that no event is ever skipped. It fails with
// [ErrNotMigrated] if there is no log.
func Read(ctx context.Context, q Querier, partition int, after Position, limit, maxBytes int) (Batch, error) {
	rows, err := q.Query(ctx, readSQL(Topic(partition)), after.TransactionID, after.Offset, limit)
	if err != nil {
		return Batch{}, fmt.Errorf("read partition %d: %w", partition, notMigrated(err))
	}
	defer rows.Close()
	var batch Batch
	var arena []byte // of payloads
	var r Record
	var transactionID uint64
	var settled bool
	row := []any{&transactionID, &r.Position.Offset, &settled, (*[16]byte)(&r.UUID), nil, &r.AppendedAt, &r.Own}
	size := 0
	for size < maxBytes && rows.Next() {
		if err := rows.Scan(row...); err != nil {
			return Batch{}, fmt.Errorf("read partition %d: %w", partition, err)
		}
		if !settled {
			batch.Hidden = true
			break
		}
		r.Position.TransactionID = int64(transactionID)
		// JSON is the same in both formats. The buffer is reused for the next
		// row.
		r.Payload = nil
		if payload := rows.RawValues()[payloadColumn]; payload != nil {
			if cap(arena)-len(arena) < len(payload) {
				arena = make([]byte, 0, max(len(payload), min(2*cap(arena), arenaBytes)))
			}
			arena = append(arena, payload...)
			r.Payload = slices.Clip(arena[len(arena)-len(payload):])
		}
		if len(batch.Records) == cap(batch.Records) {
			batch.Records = slices.Grow(batch.Records, min(max(1, 2*len(batch.Records)), limit-len(batch.Records)))
		}
		batch.Records = append(batch.Records, r)
		size += len(r.Payload)
	}
	batch.More = !batch.Hidden && (len(batch.Records) == limit || size >= maxBytes)
	rows.Close() // before Err: also drains what was left
	if err := rows.Err(); err != nil {
		return Batch{}, fmt.Errorf("read partition %d: %w", partition, notMigrated(err))
	}
	return batch, nil
}

// payloadColumn is where readSQL has the payload.
const payloadColumn = 4

// readSQL is an index range scan of the primary key, at any backlog. The
// second condition follows from the first, and lets Postgres skip the ranges
// of the log before it. Rows that cannot be read yet come last, since their
// transactions are the youngest. The columns are selected unconverted:
// converting a row costs more than finding it.
func readSQL(topic string) string {
	return `SELECT transaction_id, "offset",
       transaction_id < (SELECT pg_snapshot_xmin(pg_current_snapshot())) AS settled,
       uuid, payload, created_at, own
FROM ` + messagesTable(topic) + ` AS log
WHERE (transaction_id, "offset") > ($1::bigint::text::xid8, $2::bigint) AND transaction_id >= $1::bigint::text::xid8
ORDER BY transaction_id, "offset"
LIMIT $3`
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
