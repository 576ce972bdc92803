package traffic

import (
	"context"
	"errors"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/pubsub"
)

// MaxBadges is the most users in one call of Target.Badges.
const MaxBadges = badges.MaxBadges

// Target is where a load publishes, and where it reads what came of it. It
// is safe for concurrent use.
//
// Both methods may be called again after any error: events that come twice
// count once.
type Target interface {
	// Append returns once evs are durable, all of them, with the id of the
	// transaction that appended them. Ids of concurrent calls come in no
	// particular order.
	Append(ctx context.Context, evs []events.Event) (transactionID int64, err error)

	// Badges returns the badges of 1 to MaxBadges users, in the order given,
	// if everything that a transaction and those before it appended for them
	// is folded, and ErrNotFolded otherwise. It may wait a few seconds for
	// that.
	Badges(ctx context.Context, userIDs []string, transactionID int64) ([]pubsub.Badge, error)
}

// ErrNotFolded says that a badge is not up to date yet.
var ErrNotFolded = errors.New("the events are in the log, but not in the badges: is a projector running? " +
	"`badged lag` says what holds it up")

// TransientError is an error of a [Target] that may go away by itself, such as
// a server that restarts.
type TransientError struct {
	Err error
	// After is how long the target asked to be left alone, or 0.
	After time.Duration
}

// Error implements error.
func (e *TransientError) Error() string { return e.Err.Error() }

// Unwrap returns the error itself.
func (e *TransientError) Unwrap() error { return e.Err }
