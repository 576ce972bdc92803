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

// Target is the destination of a load. After the load, it returns the badges. It is safe for
// concurrent use.
//
// Both methods may be called again after any error, because repeated events count only once.
type Target interface {
	// Append appends evs. When all events are durable, it returns the id of the transaction. The
	// ids that concurrent calls return are in no particular order.
	Append(ctx context.Context, evs []events.Event) (transactionID int64, err error)

	// Badges returns the badges of 1 to MaxBadges users, in the order of userIDs. The badges
	// include all events up to the given transaction. If these events are not folded yet, Badges
	// may wait for a few seconds, and then returns ErrNotFolded.
	Badges(ctx context.Context, userIDs []string, transactionID int64) ([]pubsub.Badge, error)
}

// ErrNotFolded means that the badges do not include all events up to the transaction yet.
var ErrNotFolded = errors.New("the events are in the log, but not in the badges: is a projector running? " +
	"`badged lag` shows what blocks it")

// TransientError is an error of a [Target] that a retry may fix, such as during a restart of the
// server.
type TransientError struct {
	Err error
	// After is how long the target asks the caller to wait before a retry, 0 if the target has not
	// asked.
	After time.Duration
}

// Error implements error.
func (e *TransientError) Error() string { return e.Err.Error() }

// Unwrap returns the underlying error.
func (e *TransientError) Unwrap() error { return e.Err }
