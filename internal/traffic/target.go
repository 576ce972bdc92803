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

// Target is where a load publishes and reads badges. It is safe for concurrent
// use.
//
// Both methods may be called again after any error: repeated events count
// once.
type Target interface {
	// Append returns the id of the transaction that appended evs once all of
	// them are durable. Ids of concurrent calls come in no particular order.
	Append(ctx context.Context, evs []events.Event) (transactionID int64, err error)

	// Badges returns the badges of 1 to MaxBadges users, in the order given,
	// if they include everything that a transaction and those before it
	// appended, and ErrNotFolded otherwise. It may wait a few seconds for
	// that.
	Badges(ctx context.Context, userIDs []string, transactionID int64) ([]pubsub.Badge, error)
}

// ErrNotFolded means that a badge is not up to date yet.
var ErrNotFolded = errors.New("the events are in the log, but not in the badges: is a projector running? " +
	"`badged lag` shows what blocks it")

// TransientError is a temporary error of a [Target], such as that of a server
// that restarts.
type TransientError struct {
	Err error
	// After is how long the target asked to wait, or 0.
	After time.Duration
}

// Error implements error.
func (e *TransientError) Error() string { return e.Err.Error() }

// Unwrap returns the underlying error.
func (e *TransientError) Unwrap() error { return e.Err }
