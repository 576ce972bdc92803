// Package deadletters lists, retries and discards dead letters: events in the log that could not
// be folded, and messages of brokers that are not valid events.
//
// It does not know the code that folds events: a retry appends the event to the log again.
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
	"github.com/badged/badged/internal/log/eventbatch"
	"github.com/badged/badged/internal/pg/sqlfile"
)

//go:embed deadletters.sql
var statementsText string

var statements = sqlfile.Parse(statementsText)

// Letter is a dead letter: an event in the log that could not be folded, or a message of a broker
// that is not a valid event. Partition, Place (the row of the event, and its index in the row) and
// UUID are set only for an event in the log.
type Letter struct {
	ID        int64        `json:"id"`
	Partition int          `json:"partition"`
	Place     events.Place `json:"place"`
	UUID      string       `json:"uuid"`
	// Origin is the position of the message in its broker, such as kafka/chat/3/1045; empty
	// for an event in the log.
	Origin string `json:"origin,omitempty"`
	// Payload is the event in the log, or the message of the broker. It is nil if the message was
	// null or too large. If a row of the log cannot be split into events, Payload is the whole row,
	// or nil if the row was empty or too large.
	Payload []byte `json:"payload"`
	Reason  string `json:"reason"`
	// At is when the event or message became a dead letter.
	At time.Time `json:"at"`
}

// Letters gives access to the dead letters of one database. It is safe for concurrent use.
type Letters struct {
	pool *pgxpool.Pool
	log  *events.Log
	// elsewhere appends events to the databases of their users; nil if there is only one
	// database.
	elsewhere events.Append
}

// New returns access to the dead letters of the database of pool. log is the event log of this
// database.
func New(pool *pgxpool.Pool, log *events.Log) *Letters {
	return &Letters{pool: pool, log: log}
}

// PublishingTo returns a copy of d for several databases. Its Retry first appends the events with
// the function `elsewhere`, since their users may be in other databases. Then it commits the
// removal of the letter. If Retry is interrupted between the two commits, call it again: repeated
// events count once.
func (d *Letters) PublishingTo(elsewhere events.Append) *Letters {
	other := *d
	other.elsewhere = elsewhere
	return &other
}

// MaxPageBytes is the size in bytes at which a page ends. A page may be larger by the size of its
// last element, which has up to 1 MiB.
const MaxPageBytes = 4 << 20

// List returns up to `limit` dead letters whose ids are greater than `after`, in the order of their
// ids. A page may be shorter, since it also ends when it has MaxPageBytes bytes. It is empty only
// if there are no more letters.
func (d *Letters) List(ctx context.Context, after int64, limit int) ([]Letter, error) {
	rows, _ := d.pool.Query(ctx, statements.Get("list dead letters"), after, limit, MaxPageBytes)
	letters, err := pgx.CollectRows(rows, scanDeadLetter)
	if err != nil {
		return nil, fmt.Errorf("list dead letters: %w", err)
	}
	return letters, nil
}

// ErrNotFound is returned if no dead letter has the id.
var ErrNotFound = errors.New("there is no such dead letter")

// Find returns a dead letter, or [ErrNotFound].
func (d *Letters) Find(ctx context.Context, id int64) (Letter, error) {
	letter, err := oneDeadLetter(d.pool.Query(ctx, statements.Get("find a dead letter"), id))
	if err != nil {
		return Letter{}, fmt.Errorf("find dead letter %d: %w", id, err)
	}
	return letter, nil
}

// DamagedError is returned for a dead letter that is a whole row of the log, if this release of
// badged cannot split the row into events.
type DamagedError struct {
	// Damage is the defect of the row. It is nil if the dead letter does not contain the row,
	// because the row was empty or too large.
	Damage error
}

// Error implements error.
func (e *DamagedError) Error() string {
	if e.Damage == nil {
		return "the row of the log was empty or too large, and its payload was not stored; publish its events again from their source, then discard the dead letter"
	}
	return fmt.Sprintf("the row of the log still cannot be decoded: %v; publish its events again from their source, then discard the dead letter", e.Damage)
}

// Unwrap returns Damage.
func (e *DamagedError) Unwrap() error { return e.Damage }

// Retry appends the event of a dead letter to the log, like a new event, and removes the letter,
// in one transaction. If the letter is a whole row of the log, Retry appends all events of the
// row. If this release of badged cannot decode the letter, Retry keeps the letter and fails with
// a [*DamagedError] or an [*events.InvalidError]. For several databases, see
// [Letters.PublishingTo].
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
		// Append before the commit: if the append fails, the rollback restores the letter.
		receipt, err = d.elsewhere(ctx, evs...)
		return err
	})
	if err != nil {
		return events.Receipt{}, fmt.Errorf("retry dead letter %d: %w", id, err)
	}
	return receipt, nil
}

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
			all[i].PublishedBy = "" // the old value may be forged, and the operator publishes the event now
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

// oneDeadLetter returns the dead letter in the result of a query, or ErrNotFound.
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
