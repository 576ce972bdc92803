package traffic

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/pubsub"
)

// DatabaseTarget appends to the log in a database directly. Somewhere a
// projector must be running on that database for the events to be folded.
type DatabaseTarget struct {
	log    eventLog
	badges badgeReader
}

// eventLog is what a DatabaseTarget needs of an [events.Log].
type eventLog interface {
	Append(ctx context.Context, evs ...events.Event) (events.Receipt, error)
}

// badgeReader is what a DatabaseTarget needs of a [projector.Reader].
type badgeReader interface {
	Folded(ctx context.Context, userIDs []string, transactionID int64) (bool, error)
	Badges(ctx context.Context, userIDs []string) ([]pubsub.Badge, error)
}

var (
	_ Target      = (*DatabaseTarget)(nil)
	_ eventLog    = (*events.Log)(nil)
	_ badgeReader = (*badges.Reader)(nil)
)

// NewDatabaseTarget returns a target that appends to log and reads badges from
// the same database.
func NewDatabaseTarget(log *events.Log, badges *badges.Reader) *DatabaseTarget {
	return &DatabaseTarget{log: log, badges: badges}
}

// Append implements Target with one transaction.
func (t *DatabaseTarget) Append(ctx context.Context, evs []events.Event) (int64, error) {
	receipt, err := t.log.Append(ctx, evs...)
	return receipt.TransactionID, classify(err)
}

// Badges implements Target. It does not wait.
func (t *DatabaseTarget) Badges(ctx context.Context, userIDs []string, transactionID int64) ([]pubsub.Badge, error) {
	folded, err := t.badges.Folded(ctx, userIDs, transactionID)
	if err != nil {
		return nil, classify(err)
	}
	if !folded {
		return nil, ErrNotFolded
	}
	badges, err := t.badges.Badges(ctx, userIDs)
	return badges, classify(err)
}

// classify makes a TransientError of what may go away by itself: a server that
// restarts, fails over or has no room, and a broken way to it.
func classify(err error) error {
	var invalid *events.BatchError
	if err == nil || errors.As(err, &invalid) || errors.Is(err, events.ErrNotMigrated) {
		return err
	}
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && !passes(pgErr.Code) {
		return err
	}
	// What Postgres did not say itself, the connection did.
	return &TransientError{Err: err}
}

// passes reports whether an SQLSTATE is one that passes.
func passes(code string) bool {
	const readOnly = "25006" // this server is no longer, or not yet, the primary
	if code == readOnly {
		return true
	}
	for _, class := range []string{
		"08",  // connection exception
		"40",  // transaction rollback: deadlock, serialization
		"53",  // insufficient resources: connections, memory, disk
		"57P", // operator intervention: shutting down, starting up
	} {
		if strings.HasPrefix(code, class) {
			return true
		}
	}
	return false
}
