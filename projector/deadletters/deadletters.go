// Package deadletters lists, retries and discards events that could not be
// folded, and messages of brokers that are no events.
//
// It does not know the loop that folds: a retry appends the event again.
package deadletters

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/eventbatch"
	"github.com/badged/badged/internal/sqlfile"
)

//go:embed deadletters.sql
var statementsText string

var statements = sqlfile.Parse(statementsText)

// Letter is a record of the log that could not be folded, or a message of a broker
// that is no event. The latter has no Partition, Place and UUID.
type Letter struct {
	ID        int64        `json:"id"`
	Partition int          `json:"partition"`
	Place     events.Place `json:"place"`
	UUID      string       `json:"uuid"`
	// Origin is where the message of a broker was, such as kafka/chat/3/1045; empty for
	// a record of the log.
	Origin string `json:"origin,omitempty"`
	// Payload is what is in the log or was in the message, nil if it was null or too large. If the events
	// of a row cannot be told apart, it is the whole row.
	Payload []byte `json:"payload"`
	Reason  string `json:"reason"`
	// At is when it became a dead letter.
	At time.Time `json:"at"`
}

// Letters are the dead letters of one database. It is safe for concurrent use.
type Letters struct {
	pool *pgxpool.Pool
	log  *events.Log
	// elsewhere publishes events to several shards; nil if there is one database.
	elsewhere events.Append
}

// New returns the dead letters of a database and its log.
func New(pool *pgxpool.Pool, log *events.Log) *Letters {
	return &Letters{pool: pool, log: log}
}

// PublishingTo returns the same dead letters of a shard. Retry publishes their events by
// elsewhere, since their users may be on other shards, and then removes the letter: if it
// is interrupted in between it can be repeated.
func (d *Letters) PublishingTo(elsewhere events.Append) *Letters {
	other := *d
	other.elsewhere = elsewhere
	return &other
}

// MaxPageBytes ends a page: once it has that many bytes, nothing is added. An
// event may have 1 MiB.
const MaxPageBytes = 4 << 20

// List returns up to limit dead letters with an id above after, in order of
// id. It returns fewer if they exceed MaxPageBytes together, and none only
// after the last.
func (d *Letters) List(ctx context.Context, after int64, limit int) ([]Letter, error) {
	rows, _ := d.pool.Query(ctx, statements.Get("list dead letters"), after, limit, MaxPageBytes)
	letters, err := pgx.CollectRows(rows, scanDeadLetter)
	if err != nil {
		return nil, fmt.Errorf("list dead letters: %w", err)
	}
	return letters, nil
}

// ErrNotFound is returned if no dead letter has the id, or no longer.
var ErrNotFound = errors.New("there is no such dead letter")

// Find returns a dead letter, or [ErrNotFound].
func (d *Letters) Find(ctx context.Context, id int64) (Letter, error) {
	letter, err := oneDeadLetter(d.pool.Query(ctx, statements.Get("find a dead letter"), id))
	if err != nil {
		return Letter{}, fmt.Errorf("find dead letter %d: %w", id, err)
	}
	return letter, nil
}

// DamagedError is returned if a dead letter is a whole row of the log, and this
// release cannot tell the events in it apart either.
type DamagedError struct {
	// Damage is what is wrong with the row, nil if it was too large to keep.
	Damage error
}

// Error implements error.
func (e *DamagedError) Error() string {
	if e.Damage == nil {
		return "the row of the log was empty or too large, and nothing of it was kept; publish its events again from their source, then discard the dead letter"
	}
	return fmt.Sprintf("the row of the log still cannot be taken apart: %v; publish its events again from their source, then discard the dead letter", e.Damage)
}

// Unwrap returns the damage.
func (e *DamagedError) Unwrap() error { return e.Damage }

// Retry publishes a dead letter again and removes it, in one transaction. It
// goes through the log like a new event; so do all events of a whole row. If this
// release cannot decode them either, Retry keeps the letter and fails with a
// [*DamagedError] or an [*events.InvalidError]. See [Letters.PublishingTo] for shards.
func (d *Letters) Retry(ctx context.Context, id int64) (events.Receipt, error) {
	var receipt events.Receipt
	err := pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
		letter, err := oneDeadLetter(tx.Query(ctx, statements.Get("remove a dead letter"), id))
		if err != nil {
			return err
		}
		evs, err := eventsOf(letter)
		if err != nil {
			return err
		}
		if d.elsewhere == nil {
			receipt, err = d.log.Publish(ctx, tx, evs...)
			return err
		}
		// First there, so that the letter stays if that fails.
		receipt, err = d.elsewhere(ctx, evs...)
		return err
	})
	if err != nil {
		return events.Receipt{}, fmt.Errorf("retry dead letter %d: %w", id, err)
	}
	return receipt, nil
}

// eventsOf returns the events of a dead letter.
func eventsOf(l Letter) ([]events.Event, error) {
	if l.Origin != "" {
		e, err := events.Decode(l.Payload)
		if err == nil {
			err = e.CheckReserved()
		}
		return []events.Event{e}, err
	}
	if len(l.Payload) == 0 {
		return nil, &DamagedError{}
	}
	payloads, err := eventbatch.Unpack(l.Payload)
	if err != nil {
		return nil, &DamagedError{Damage: err}
	}
	all := make([]events.Event, len(payloads))
	for i, payload := range payloads {
		if all[i], err = events.Decode(payload); err == nil {
			all[i].PublishedBy = "" // which may be forged; the operator publishes it now
			err = all[i].CheckReserved()
		}
		if err != nil && len(payloads) > 1 {
			return nil, fmt.Errorf("event %d of its row: %w", i, err)
		} else if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Discard removes a dead letter permanently and returns it.
func (d *Letters) Discard(ctx context.Context, id int64) (Letter, error) {
	letter, err := oneDeadLetter(d.pool.Query(ctx, statements.Get("remove a dead letter"), id))
	if err != nil {
		return Letter{}, fmt.Errorf("discard dead letter %d: %w", id, err)
	}
	return letter, nil
}

// oneDeadLetter returns the dead letter that a query found, or ErrNotFound.
func oneDeadLetter(rows pgx.Rows, err error) (Letter, error) {
	if err != nil {
		return Letter{}, err
	}
	letter, err := pgx.CollectExactlyOneRow(rows, scanDeadLetter)
	if errors.Is(err, pgx.ErrNoRows) {
		return Letter{}, ErrNotFound
	}
	return letter, err
}

func scanDeadLetter(row pgx.CollectableRow) (Letter, error) {
	var l Letter
	err := row.Scan(&l.ID, &l.Partition, &l.Place.TransactionID, &l.Place.Offset, &l.Place.Index, &l.UUID, &l.Origin, &l.Payload, &l.Reason, &l.At)
	return l, err
}
