// Package eventlog is the log of events apart from the events themselves: layouts of
// partitions, and the rows that are appended. Package events
// builds on it and exports what publishers and consumers need: its Log is a [Log], and its
// Layout a [Layout]. Other packages of badged convert the pointers for the rest.
//
// It does not know what events mean, or how they are folded. ADR 58 says why rows hold
// batches, ADR 25 why the log is in ranges, ADR 85 what a position is.
package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ErrNotMigrated is returned if the database has no log.
var ErrNotMigrated = errors.New("the database has no badged schema; run `badged migrate up`")

// ErrNotHeld is returned if a database does not hold a partition: it is on another shard,
// or was split.
var ErrNotHeld = errors.New("the partition is not in this database any more")

// Querier runs queries: a pgx connection, pool or transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// QueryRow scans the one column of the one row of a query into dest.
type QueryRow func(ctx context.Context, query string, dest any, args ...any) error

// Log is the log of events of type E in one database. It is safe for concurrent use.
type Log[E any] struct {
	pool   *pgxpool.Pool
	encode Encode[E]
	layout atomic.Pointer[Layout]
	// changing is held while the layout changes, and changed closed when it has.
	changing sync.Mutex
	changed  chan struct{}
	// shared is set if the database is one of several, so that another part of the process
	// knows the layout.
	shared atomic.Bool
	// stale is set if the layout must be read again.
	stale atomic.Bool
	now   func() time.Time
}

// Encode validates events and encodes them, by partition in ascending order.
type Encode[E any] func(ctx context.Context, l *Log[E], evs []E) ([]Rows, error)

// Attach returns the log in the database of pool, which began with that many partitions,
// without connecting. As long as nothing else is known, none of them was split.
func Attach[E any](pool *pgxpool.Pool, partitions int, encode Encode[E]) *Log[E] {
	l := &Log[E]{pool: pool, encode: encode, changed: make(chan struct{}), now: time.Now}
	l.layout.Store(NewLayout(partitions, nil))
	return l
}

// Check fails with ErrNotMigrated or ErrRestored if the database has no log or one whose
// order cannot be trusted, and if the log began with another number of partitions than it
// was attached with.
func (l *Log[E]) Check(ctx context.Context) error {
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

// UseClock says what the time of events without one is; otherwise the clock of this machine
// does. Call it before the log is used.
func (l *Log[E]) UseClock(now func() time.Time) { l.now = now }

// Now returns the time of events that have none.
func (l *Log[E]) Now() time.Time { return l.now() }

// Layout returns in which partition each user is, as last known.
func (l *Log[E]) Layout() *Layout { return l.layout.Load() }

// SetLayout says what the layout is, for a database that is one of several shards. From
// then on the log does not read it.
func (l *Log[E]) SetLayout(layout *Layout) {
	l.shared.Store(true)
	l.setLayout(layout)
}

func (l *Log[E]) setLayout(layout *Layout) {
	l.changing.Lock()
	defer l.changing.Unlock()
	if before := l.layout.Swap(layout); !before.Equal(layout) {
		close(l.changed)
		l.changed = make(chan struct{})
	}
}

// Changed returns a channel that is closed once the layout is another than now.
func (l *Log[E]) Changed() <-chan struct{} {
	l.changing.Lock()
	defer l.changing.Unlock()
	return l.changed
}

// Refresh reads the layout again, unless [Log.SetLayout] says what it is.
func (l *Log[E]) Refresh(ctx context.Context) error {
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

// LayoutIn returns the layout for a transaction of a caller. It reads the layout there if
// [Log.Refused] was told that the last one is outdated.
func (l *Log[E]) LayoutIn(ctx context.Context, queryRow QueryRow) (*Layout, error) {
	if l.stale.Load() {
		layout, err := ReadLayout(ctx, queryRow)
		if err != nil {
			return nil, err
		}
		l.stale.Store(false)
		l.setLayout(layout)
	}
	return l.Layout(), nil
}

// Refused takes the error of a transaction of a caller, which can read nothing any more.
func (l *Log[E]) Refused(err error) {
	if !l.shared.Load() && errors.Is(err, ErrNotHeld) {
		l.stale.Store(true)
	}
}

// follow reads the layout again after an append was refused with err, and reports whether
// it is another now.
func (l *Log[E]) follow(ctx context.Context, err error) bool {
	if l.shared.Load() || !errors.Is(err, ErrNotHeld) {
		return false
	}
	before := l.Layout()
	return l.Refresh(ctx) == nil && !before.Equal(l.Layout())
}

func (l *Log[E]) readLayout(ctx context.Context) (*Layout, error) {
	return ReadLayout(ctx, l.queryRow)
}

func (l *Log[E]) queryRow(ctx context.Context, query string, dest any, args ...any) error {
	return l.pool.QueryRow(ctx, query, args...).Scan(dest)
}

// layoutSQL returns with how many partitions the log began, and the living ones, null if
// none was split: as JSON, since database/sql cannot scan arrays.
const layoutSQL = `SELECT json_build_object('first', partitions, 'living', badged.living_partitions())::text FROM badged.settings`

// ReadLayout reads the layout of the log of a database that is not one of several.
func ReadLayout(ctx context.Context, queryRow QueryRow) (*Layout, error) {
	var text string
	if err := queryRow(ctx, layoutSQL, &text); err != nil {
		return nil, NotMigrated(err)
	}
	var stored struct {
		First  int
		Living []int
	}
	if err := json.Unmarshal([]byte(text), &stored); err != nil {
		return nil, fmt.Errorf("read the layout of the log: %w", err)
	}
	return NewLayout(stored.First, stored.Living), nil
}

// Open reads the layout and returns the log of a database that is not one of several. It
// fails as [Log.Check] does.
func Open[E any](ctx context.Context, pool *pgxpool.Pool, encode Encode[E]) (*Log[E], error) {
	l := Attach(pool, 1, encode)
	if err := l.Refresh(ctx); err != nil {
		return nil, fmt.Errorf("open the event log: %w", err)
	}
	if err := checkOrigin(ctx, pool); err != nil {
		return nil, fmt.Errorf("open the event log: %w", err)
	}
	return l, nil
}

// codeNotHeld is the code of the error by which a database refuses events of a partition
// that it does not hold.
const codeNotHeld = "BD100"

// Refusal turns errors by which Postgres refuses an append into ErrNotHeld and
// ErrNotMigrated.
func Refusal(err error) error {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == codeNotHeld {
		return fmt.Errorf("%w (%w)", ErrNotHeld, err)
	}
	return NotMigrated(err)
}

// Refusal is like the function [Refusal], for rows of a partition. A shard has no tables of a
// partition of another that came from a split.
func (l *Layout) Refusal(partition int, err error) error {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == undefinedTable && partition >= l.n {
		return fmt.Errorf("%w (%w)", ErrNotHeld, err)
	}
	return Refusal(err)
}

const undefinedTable = "42P01"

// NotMigrated turns Postgres's word for a missing table or schema into ErrNotMigrated.
func NotMigrated(err error) error {
	const invalidSchemaName = "3F000"
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && (pgErr.Code == undefinedTable || pgErr.Code == invalidSchemaName) {
		return fmt.Errorf("%w (%s)", ErrNotMigrated, pgErr.Message)
	}
	return err
}
