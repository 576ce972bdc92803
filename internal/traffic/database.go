package traffic

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/appending"
	"github.com/badged/badged/internal/shards"
	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/pubsub"
)

// DatabaseTarget appends directly to the log in a database. A projector must
// be running on that database to fold the events.
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

// NewDatabaseTarget returns a target that appends to log and reads badges from
// the same database.
func NewDatabaseTarget(log *events.Log, badges *badges.Reader) *DatabaseTarget {
	return &DatabaseTarget{log: log, badges: badges}
}

// NewClusterTarget returns a target that appends to the shards of the users, and reads
// their badges there.
func NewClusterTarget(c *shards.Cluster) *DatabaseTarget {
	numbers := &positions{}
	log := shards.NewAppender(c, func(s *shards.Shard) events.Append { return appending.To(s.Log) })
	return &DatabaseTarget{log: clusterLog{log, numbers}, badges: clusterReader{shards.NewReader(c), numbers}}
}

// clusterLog implements eventLog.
type clusterLog struct {
	*shards.Appender
	positions *positions
}

// Append implements eventLog. The transaction of the receipt is the number of its position.
func (l clusterLog) Append(ctx context.Context, evs ...events.Event) (events.Receipt, error) {
	receipt, err := l.Appender.Append(ctx, evs...)
	if err == nil {
		receipt.TransactionID, err = l.positions.number(receipt.Position())
	}
	return receipt, err
}

// clusterReader implements badgeReader.
type clusterReader struct {
	*shards.Reader
	positions *positions
}

// Folded implements badgeReader.
func (r clusterReader) Folded(ctx context.Context, userIDs []string, number int64) (bool, error) {
	return r.FoldedAt(ctx, userIDs, r.positions.position(number))
}

// Append implements Target with one transaction, in each shard.
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

// classify makes a TransientError of a temporary fault: a server that
// restarts, fails over or is full, or a broken connection.
func classify(err error) error {
	var invalid *events.BatchError
	if err == nil || errors.As(err, &invalid) || errors.Is(err, events.ErrNotMigrated) {
		return err
	}
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && !passes(pgErr.Code) {
		return err
	}
	// An error without a code of Postgres comes from the connection.
	return &TransientError{Err: err}
}

// passes reports whether an SQLSTATE is temporary.
func passes(code string) bool {
	const readOnly = "25006" // this server is not the primary, perhaps for a moment
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
