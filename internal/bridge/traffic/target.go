package traffic

import (
	"context"
	"errors"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/pubsub"
)

// MaxBadges is the maximum number of users in one call of Target.Badges.
const MaxBadges = badges.MaxBadges

// Target is the destination of a load, and the source of the badges after it. It is safe for
// concurrent use.
//
// Both methods may be called again after any error, since repeated events count once.
type Target interface {
	// Append appends evs and returns the id of the transaction once all events are durable.
	// Ids of concurrent calls are in no particular order.
	Append(ctx context.Context, evs []events.Event) (transactionID int64, err error)

	// Badges returns the badges of 1 to MaxBadges users, in the order of userIDs, once they
	// include all events up to a transaction. It may wait for a few seconds; if this does not
	// suffice, it returns ErrNotFolded.
	Badges(ctx context.Context, userIDs []string, transactionID int64) ([]pubsub.Badge, error)
}

// ErrNotFolded means that a badge does not include all events yet.
var ErrNotFolded = errors.New("the events are in the log, but not in the badges: is a projector running? " +
	"`badged lag` shows what blocks it")

// TransientError is a temporary error of a [Target], such as during a restart of the server.
type TransientError struct {
	Err error
	// After is how long the target asks to wait before a retry, or 0.
	After time.Duration
}

// Error implements error.
func (e *TransientError) Error() string { return e.Err.Error() }

// Unwrap returns the underlying error.
func (e *TransientError) Unwrap() error { return e.Err }
