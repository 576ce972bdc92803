package events

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/internal/eventlog"
)

// ErrNotMigrated is returned if the database has no log.
var ErrNotMigrated = eventlog.ErrNotMigrated

// ErrNotHeld is returned if a database does not hold a partition: it is on another shard,
// or was split.
var ErrNotHeld = eventlog.ErrNotHeld

// ErrRestored is returned if events were copied into the database by pg_dump or
// logical replication and the log has not been renumbered since. Its order is that
// of transaction ids, which are those of another cluster: events may be invisible,
// and new events may sort before old ones.
var ErrRestored = eventlog.ErrRestored

// Log is the event log of one database: an append-only table per partition,
// which is a watermill-sql topic. It is safe for concurrent use.
type Log eventlog.Log[Event]

// Open returns the log in the database of pool. It fails with [ErrNotMigrated] if
// there is none, and with [ErrRestored] if its order cannot be trusted.
func Open(ctx context.Context, pool *pgxpool.Pool) (*Log, error) {
	l, err := eventlog.Open(ctx, pool, encodeOwn)
	return (*Log)(l), err
}

// Attach returns the log in the database of pool without connecting, for a process that
// starts while its database is away. It must have begun with that many partitions: before
// anything folds the log, [Log.Check] must have succeeded.
func Attach(pool *pgxpool.Pool, partitions int) *Log {
	return (*Log)(eventlog.Attach(pool, partitions, encodeOwn))
}

func (l *Log) core() *eventlog.Log[Event] { return (*eventlog.Log[Event])(l) }

// Check fails as [Open] does, and if the log began with another number of partitions than
// it was attached with.
func (l *Log) Check(ctx context.Context) error { return l.core().Check(ctx) }

// Partitions returns with how many partitions the log began: see [Layout].
func (l *Log) Partitions() int { return l.Layout().First() }

// Layout returns in which partition each user is, as last known.
func (l *Log) Layout() *Layout { return (*Layout)(l.core().Layout()) }

// Changed returns a channel that is closed once the layout is another than now.
func (l *Log) Changed() <-chan struct{} { return l.core().Changed() }

// Refresh reads the layout again. Appends do so where they must.
func (l *Log) Refresh(ctx context.Context) error { return l.core().Refresh(ctx) }

// PartitionOf returns the partition of a user, as last known.
func (l *Log) PartitionOf(userID string) int { return l.Layout().PartitionOf(userID) }

// Route returns the partition of a user before any was split, which never changes: updates
// for clients are routed by it.
func (l *Log) Route(userID string) int { return PartitionOf(userID, l.Partitions()) }

// Receipt describes an append.
type Receipt struct {
	// TransactionID is the transaction that appended. All its events have been
	// folded once every partition's position has passed it.
	TransactionID int64
	// Timeline is the timeline of Postgres then, 0 if it is not known.
	Timeline int64
	// Partitions are those that hold some of the events, in ascending order,
	// except where the same transaction has folded them: the projectors of these are
	// to be woken.
	Partitions []int
	// Shards is what publishers get to name the position of the append, if the events
	// went to one or more of several databases. Otherwise it is "".
	Shards string
}

// Position names the position of the append for publishers.
func (r Receipt) Position() string {
	if r.Shards != "" {
		return r.Shards
	}
	return strconv.FormatInt(int64(eventlog.NewToken(r.Timeline, r.TransactionID)), 10)
}

// receiptOf returns the receipt of rows that a transaction appended.
func receiptOf(token eventlog.Token, rows []eventlog.Rows) Receipt {
	return Receipt{TransactionID: token.TransactionID(), Timeline: token.Timeline(), Partitions: eventlog.Partitions(rows)}
}

// Append validates evs and appends them in a transaction of its own: all or none.
// If the connection breaks during the commit, it returns an error although the
// events may be durable; append them again, since repeated events count once.
//
// To append in a transaction of your own, use [Publish].
//
// It returns a [*BatchError] if events are invalid or have what only badged may write,
// see [Event.CheckReserved], and otherwise wraps the error of Postgres.
func (l *Log) Append(ctx context.Context, evs ...Event) (Receipt, error) {
	if len(evs) == 0 {
		return Receipt{}, nil
	}
	if slices.ContainsFunc(evs, func(e Event) bool { return e.CheckReserved() != nil }) {
		_, err := checkAll(evs, false)
		return Receipt{}, err
	}
	token, rows, err := l.core().Append(ctx, nil, evs)
	if err != nil {
		return Receipt{}, err
	}
	return receiptOf(token, rows), nil
}

// Append appends events in one transaction, as [Log.Append] does.
type Append func(ctx context.Context, evs ...Event) (Receipt, error)

// BatchError lists the invalid events of a call. None of its events was appended.
type BatchError struct {
	Events []IndexedError
}

// IndexedError is the error of the event at Index.
type IndexedError struct {
	Index int
	Err   *InvalidError
}

// Error implements error.
func (e *BatchError) Error() string {
	first := e.Events[0]
	if len(e.Events) == 1 {
		return fmt.Sprintf("event %d: %v", first.Index, first.Err)
	}
	return fmt.Sprintf("%d events are invalid; event %d: %v", len(e.Events), first.Index, first.Err)
}
