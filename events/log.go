package events

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Log is the event log of one database. Each partition is an append-only table, which is a
// watermill-sql topic. A Log is safe for concurrent use.
type Log struct {
	pool   *pgxpool.Pool
	layout atomic.Pointer[Layout]
	// changing guards changed, which is closed and replaced whenever the layout changes.
	changing sync.Mutex
	changed  chan struct{}
	// shared is true if the log has several databases. Then the log never reads the layout from the
	// database: another part of the process sets it.
	shared atomic.Bool
	// stale is true if the layout must be read again.
	stale atomic.Bool
	now   func() time.Time
}

// Open returns the log in the database of pool. It fails with [ErrNotMigrated] if the database
// has no log, and with [ErrRestored] if the log was copied from another database and not
// renumbered.
func Open(ctx context.Context, pool *pgxpool.Pool) (*Log, error) {
	l := Attach(pool, 1)
	if err := l.Refresh(ctx); err != nil {
		return nil, fmt.Errorf("open the event log: %w", err)
	}
	if err := checkOrigin(ctx, pool); err != nil {
		return nil, fmt.Errorf("open the event log: %w", err)
	}
	return l, nil
}

// Attach returns the log in the database of pool without connecting to the database, which may be
// unavailable when the process starts. partitions must be the number of partitions with which the
// log began; call [Log.Check] before folding the log. Until the layout is read or set, the log
// assumes that no partition was split.
func Attach(pool *pgxpool.Pool, partitions int) *Log {
	l := &Log{pool: pool, changed: make(chan struct{}), now: time.Now}
	l.layout.Store(NewLayout(partitions, nil))
	return l
}

// Check fails in the same cases as [Open]. It also fails if partitions, as given to [Attach], is
// not the number of partitions with which the log began.
func (l *Log) Check(ctx context.Context) error {
	stored, err := l.readLayout(ctx)
	if err != nil {
		return fmt.Errorf("open the event log: %w", err)
	}
	if n := l.Layout().First(); stored.First() != n {
		return fmt.Errorf("open the event log: it began with %d partitions, not with %d", stored.First(), n)
	}
	if err := checkOrigin(ctx, l.pool); err != nil {
		return fmt.Errorf("open the event log: %w", err)
	}
	return nil
}

// UseClock sets the clock from which events without a time get their time. The default is the clock
// of this machine. Call UseClock before the log is used.
func (l *Log) UseClock(now func() time.Time) { l.now = now }

// Layout returns the last known layout.
func (l *Log) Layout() *Layout { return l.layout.Load() }

// SetLayout sets the layout, if the log has several databases. From then on the log no longer reads
// the layout from the database.
func (l *Log) SetLayout(layout *Layout) {
	l.shared.Store(true)
	l.setLayout(layout)
}

func (l *Log) setLayout(layout *Layout) {
	l.changing.Lock()
	defer l.changing.Unlock()
	if before := l.layout.Swap(layout); !before.Equal(layout) {
		close(l.changed)
		l.changed = make(chan struct{})
	}
}

// Changed returns a channel that is closed when the layout changes.
func (l *Log) Changed() <-chan struct{} {
	l.changing.Lock()
	defer l.changing.Unlock()
	return l.changed
}

// Refresh reads the layout again. It does nothing after [Log.SetLayout] was called.
func (l *Log) Refresh(ctx context.Context) error {
	if l.shared.Load() {
		return nil
	}
	stored, err := l.readLayout(ctx)
	if err != nil {
		return err
	}
	l.setLayout(stored)
	return nil
}

// layoutIn returns the layout for a caller's transaction. If the layout is marked as outdated,
// layoutIn first reads it again, in this transaction.
func (l *Log) layoutIn(ctx context.Context, queryRow queryRow) (*Layout, error) {
	if l.stale.Load() {
		layout, err := readLayout(ctx, queryRow)
		if err != nil {
			return nil, err
		}
		l.stale.Store(false)
		l.setLayout(layout)
	}
	return l.Layout(), nil
}

// refused processes the error of a caller's transaction. If the error says that a partition was
// split, refused marks the layout as outdated, and the next transaction reads it again. The present
// transaction has failed, so Postgres accepts no more queries in it.
func (l *Log) refused(err error) {
	if !l.shared.Load() && errors.Is(err, ErrNotHeld) {
		l.stale.Store(true)
	}
}

// refreshAfter is called when an append that used the layout `used` has failed with err. If err
// says that the database no longer has a partition, refreshAfter reads the layout again. It reports
// whether the layout has changed; if so, the caller encodes and appends the events again.
func (l *Log) refreshAfter(ctx context.Context, err error, used *Layout) bool {
	if l.shared.Load() || !errors.Is(err, ErrNotHeld) {
		return false
	}
	return l.Refresh(ctx) == nil && !used.Equal(l.Layout())
}

func (l *Log) readLayout(ctx context.Context) (*Layout, error) {
	return readLayout(ctx, l.queryRow)
}

func (l *Log) queryRow(ctx context.Context, query string, dest any, args ...any) error {
	return l.pool.QueryRow(ctx, query, args...).Scan(dest)
}

// Partitions returns the number of partitions with which the log began: see [Layout].
func (l *Log) Partitions() int { return l.Layout().First() }

// PartitionOf returns the partition of a user in the last known layout.
func (l *Log) PartitionOf(userID string) int { return l.Layout().PartitionOf(userID) }

// Route returns the partition to which a user belonged before any split. This number never changes,
// so the bus routes updates for clients by it.
func (l *Log) Route(userID string) int { return PartitionOf(userID, l.Partitions()) }
