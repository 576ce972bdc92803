package traffic

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/pubsub"
)

// DatabaseTarget appends directly to the log in one or several databases. It does not fold: a
// projector must run elsewhere.
type DatabaseTarget struct {
	log    eventLog
	badges badgeReader
}

// eventLog is the part of [events.Log] that a DatabaseTarget uses.
type eventLog interface {
	Append(ctx context.Context, evs ...events.Event) (events.Receipt, error)
}

// badgeReader is the part of [badges.Reader] that a DatabaseTarget uses.
type badgeReader interface {
	Folded(ctx context.Context, userIDs []string, transactionID int64) (bool, error)
	Badges(ctx context.Context, userIDs []string) ([]pubsub.Badge, error)
}

var (
	_ Target      = (*DatabaseTarget)(nil)
	_ eventLog    = (*events.Log)(nil)
	_ badgeReader = (*badges.Reader)(nil)
)

// NewDatabaseTarget returns a target that appends to log and reads badges from the same
// database.
func NewDatabaseTarget(log *events.Log, badges *badges.Reader) *DatabaseTarget {
	return &DatabaseTarget{log: log, badges: badges}
}

// NewClusterTarget returns a target that appends to several databases and reads badges from them.
func NewClusterTarget(c *cluster.Cluster) *DatabaseTarget {
	numbers := &positions{}
	log := cluster.NewAppender(c, func(s *cluster.Database) events.Append { return s.Log.AppendOwn })
	return &DatabaseTarget{log: clusterLog{log, numbers}, badges: clusterReader{cluster.NewReader(c), numbers}}
}

// clusterLog implements eventLog.
type clusterLog struct {
	*cluster.Appender
	positions *positions
}

// Append implements eventLog. TransactionID of the receipt is not the id of a transaction: it is
// the number that l.positions assigns to the position after the events in all databases.
func (l clusterLog) Append(ctx context.Context, evs ...events.Event) (events.Receipt, error) {
	receipt, err := l.Appender.Append(ctx, evs...)
	if err == nil {
		receipt.TransactionID, err = l.positions.number(receipt.Position())
	}
	return receipt, err
}

// clusterReader implements badgeReader.
type clusterReader struct {
	*cluster.Reader
	positions *positions
}

// Folded implements badgeReader.
func (r clusterReader) Folded(ctx context.Context, userIDs []string, number int64) (bool, error) {
	return r.FoldedAt(ctx, userIDs, r.positions.position(number))
}

// Append implements Target, with one transaction in each database.
func (t *DatabaseTarget) Append(ctx context.Context, evs []events.Event) (int64, error) {
	receipt, err := t.log.Append(ctx, evs...)
	return receipt.TransactionID, classify(err)
}

// Badges implements Target. It does not wait: if the events are not folded yet, it returns
// ErrNotFolded.
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

// classify wraps err in a TransientError if the fault is temporary: the server restarts, fails over
// or lacks resources, or the connection is broken.
func classify(err error) error {
	var invalid *events.BatchError
	if err == nil || errors.As(err, &invalid) || errors.Is(err, events.ErrNotMigrated) {
		return err
	}
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && !passes(pgErr.Code) {
		return err
	}
	// An error without an SQLSTATE comes from the connection.
	return &TransientError{Err: err}
}

// passes reports whether an SQLSTATE describes a temporary fault.
func passes(code string) bool {
	const readOnly = "25006" // this server is not the primary; a failover may be running
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
