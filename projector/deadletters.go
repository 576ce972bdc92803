package projector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
)

// DeadLetter is a record of the log that could not be folded and was put aside.
type DeadLetter struct {
	ID        int64           `json:"id"`
	Partition int             `json:"partition"`
	Position  events.Position `json:"position"`
	UUID      string          `json:"uuid"`
	// Payload is what was in the log, nil where nothing was.
	Payload []byte `json:"payload"`
	Reason  string `json:"reason"`
	// At is when it was put aside.
	At time.Time `json:"at"`
}

// DeadLetters is what was put aside in one database. It is safe for concurrent
// use.
type DeadLetters struct {
	pool *pgxpool.Pool
	log  *events.Log
}

// NewDeadLetters returns the dead letters of a database and its log.
func NewDeadLetters(pool *pgxpool.Pool, log *events.Log) *DeadLetters {
	return &DeadLetters{pool: pool, log: log}
}

// deadLetterColumns are what scanDeadLetter scans.
const deadLetterColumns = `id, partition_id, transaction_id::text::bigint, "offset", uuid::text, payload::text, reason, created_at`

// MaxPageBytes ends a page of dead letters, or of what else may be large: once a
// page has so many bytes, nothing is added to it. An event may have 1 MiB.
const MaxPageBytes = 4 << 20

// List returns up to limit dead letters with an id above after, in the order in
// which they were put aside: fewer where they are larger than MaxPageBytes
// together, and none only behind the last.
func (d *DeadLetters) List(ctx context.Context, after int64, limit int) ([]DeadLetter, error) {
	rows, err := d.pool.Query(ctx, `SELECT `+deadLetterColumns+`
FROM (SELECT *, sum(coalesce(octet_length(payload::text), 0) + octet_length(reason)) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
      FROM (SELECT * FROM badged.dead_letters WHERE id > $1 ORDER BY id LIMIT $2) AS page) AS page
WHERE coalesce(before, 0) < $3
ORDER BY id`, after, limit, MaxPageBytes)
	if err != nil {
		return nil, fmt.Errorf("list dead letters: %w", err)
	}
	letters, err := pgx.CollectRows(rows, scanDeadLetter)
	if err != nil {
		return nil, fmt.Errorf("list dead letters: %w", err)
	}
	return letters, nil
}

// ErrNoDeadLetter is returned for an id that no dead letter has, or has any
// more.
var ErrNoDeadLetter = errors.New("there is no such dead letter")

// Find returns a dead letter, or [ErrNoDeadLetter].
func (d *DeadLetters) Find(ctx context.Context, id int64) (DeadLetter, error) {
	letter, err := oneDeadLetter(d.pool.Query(ctx, `SELECT `+deadLetterColumns+` FROM badged.dead_letters WHERE id = $1`, id))
	if err != nil {
		return DeadLetter{}, fmt.Errorf("find dead letter %d: %w", id, err)
	}
	return letter, nil
}

const removeDeadLetterSQL = `DELETE FROM badged.dead_letters WHERE id = $1 RETURNING ` + deadLetterColumns

// Retry publishes a dead letter again and removes it, in one transaction: it
// goes through the log like any event, as of now. It fails with an
// [*events.InvalidError], and leaves the letter, where this release cannot
// understand it either.
func (d *DeadLetters) Retry(ctx context.Context, id int64) (events.Receipt, error) {
	var receipt events.Receipt
	err := pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
		letter, err := oneDeadLetter(tx.Query(ctx, removeDeadLetterSQL, id))
		if err != nil {
			return err
		}
		e, err := events.Decode(letter.Payload)
		if err != nil {
			return err
		}
		receipt, err = d.log.Publish(ctx, tx, e)
		return err
	})
	if err != nil {
		return events.Receipt{}, fmt.Errorf("retry dead letter %d: %w", id, err)
	}
	return receipt, nil
}

// Discard removes a dead letter for good and returns it.
func (d *DeadLetters) Discard(ctx context.Context, id int64) (DeadLetter, error) {
	letter, err := oneDeadLetter(d.pool.Query(ctx, removeDeadLetterSQL, id))
	if err != nil {
		return DeadLetter{}, fmt.Errorf("discard dead letter %d: %w", id, err)
	}
	return letter, nil
}

// oneDeadLetter returns the dead letter that a query has found, or
// ErrNoDeadLetter.
func oneDeadLetter(rows pgx.Rows, err error) (DeadLetter, error) {
	if err != nil {
		return DeadLetter{}, err
	}
	letter, err := pgx.CollectExactlyOneRow(rows, scanDeadLetter)
	if errors.Is(err, pgx.ErrNoRows) {
		return DeadLetter{}, ErrNoDeadLetter
	}
	return letter, err
}

func scanDeadLetter(row pgx.CollectableRow) (DeadLetter, error) {
	var l DeadLetter
	err := row.Scan(&l.ID, &l.Partition, &l.Position.TransactionID, &l.Position.Offset, &l.UUID, &l.Payload, &l.Reason, &l.At)
	return l, err
}
