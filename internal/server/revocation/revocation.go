// Package revocation records in a table the revoked tokens of users, and the users who must be
// disconnected. All processes read this table.
//
// It does not know sessions: callers end connections. ADR 69 has the reasons.
package revocation

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/pg/sqlfile"
)

const (
	// interval is how often the table is read. Every process must know a revocation within a
	// second, so interval is half a second.
	interval = 500 * time.Millisecond
	// pageRows is the most rows that one statement reads. Such a statement takes about 10 ms.
	pageRows = 5000
	// pageTimeout limits one statement, since a statement on a dead connection would delay the
	// next statements.
	pageTimeout = 2 * time.Second
	// staleAfter is the highest permitted age of the last successful read. If the read is
	// older, the process is not ready and admits no tokens. So no process accepts a revoked
	// token for longer than staleAfter.
	staleAfter = 10 * time.Second
)

//go:embed revocation.sql
var statementsText string

var statements = sqlfile.Parse(statementsText)

// Config configures a List.
type Config struct {
	// Ended is called with users whose connections must end, after Revoked already reports
	// their tokens as revoked. It must not block. It is called from one goroutine at a time.
	// Nil means that there are no connections.
	Ended func(userIDs []string)
	// Connected returns the users with connections. It is used when tokens of an erased user
	// are revoked: the id of this user is stored nowhere, so the list compares the digests of
	// connected users with the stored digest, and calls Ended for the user that matches. Nil
	// means that there are no connections.
	Connected func() []string
	// MaxLifetime is the longest time for which a token may be valid after it was issued. A
	// revocation is deleted some time after MaxLifetime; it is never deleted if MaxLifetime is
	// 0.
	MaxLifetime time.Duration
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Registerer registers the metrics, unless nil.
	Registerer prometheus.Registerer
}

// List has the content of the table in memory. It is safe for concurrent use.
type List struct {
	cfg   Config
	pool  *pgxpool.Pool
	hints chan struct{}

	// known has the revocations of the database; it is nil until all rows were read once. When
	// the process sees another database, next collects the rows of that database, and replaces
	// known once all rows are read; otherwise next is nil. A token is revoked if one of the two
	// tables says so.
	known, next atomic.Pointer[table]
	// readAt is the start of the last read that has reached the newest row.
	readAt atomic.Pointer[time.Time]

	// reading is a semaphore that one goroutine at a time can acquire. It guards database, last
	// and older. A goroutine that reads new rows acquires it.
	reading chan struct{}
	// database names the database from which the rows were read. New rows are the rows with a
	// seq above last. If next is set, the old rows with a seq up to older must also be read:
	// these rows existed when the database was first seen.
	database    string
	last, older int64
	// ending is a semaphore that admits one call that writes at a time. Concurrent writes would
	// wait for the same row lock, and could use up all database connections.
	ending chan struct{}

	failed prometheus.Counter
}

// New returns a list that has read nothing yet. Call Load or Run.
func New(pool *pgxpool.Pool, cfg Config) *List {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	auto := promauto.With(cfg.Registerer)
	l := &List{
		cfg: cfg, pool: pool, hints: make(chan struct{}, 1), reading: make(chan struct{}, 1), ending: make(chan struct{}, 1),
		last: math.MaxInt64, // until the database is known, no row counts as new
		failed: auto.NewCounter(prometheus.CounterOpts{
			Namespace: "badged", Subsystem: "auth", Name: "revocation_read_errors_total",
			Help: "Reads of revocations that failed. Until a read succeeds, this process knows only earlier revocations.",
		}),
	}
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "badged", Subsystem: "auth", Name: "revoked_users", Help: "Users with revoked tokens that this process knows.",
	}, func() float64 {
		users := int64(0)
		for _, t := range l.tables() {
			users = max(users, t.users.Load())
		}
		return float64(users)
	})
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "badged", Subsystem: "auth", Name: "revocation_age_seconds",
		Help: "Seconds since the revocations were last read. After 10 seconds the process accepts no tokens. NaN before the first read.",
	}, func() float64 {
		if l.known.Load() == nil {
			return math.NaN()
		}
		return time.Since(*l.readAt.Load()).Seconds()
	})
	return l
}

// Load reads the whole table at the first call, and only new rows at later calls. If it fails,
// Run continues where Load stopped.
func (l *List) Load(ctx context.Context) error {
	for {
		if more, err := l.read(ctx); !more || err != nil {
			return err
		}
	}
}

// read reads all new rows, and one page of old rows. It reports whether there are more old
// rows.
func (l *List) read(ctx context.Context) (more bool, err error) {
	if err := l.follow(ctx); err != nil {
		return false, err
	}
	return l.readOlder(ctx)
}

// Run keeps the list up to date until ctx is done, and returns nil. While the table cannot be
// read, the list does not change.
func (l *List) Run(ctx context.Context) error {
	failing := false
	for {
		more, err := l.read(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			l.failed.Inc()
			if !failing {
				l.cfg.Logger.WarnContext(ctx, "cannot read which tokens are revoked; trying again twice a second, and the known revocations stay in force", "error", err)
			}
		case failing:
			l.cfg.Logger.InfoContext(ctx, "the revoked tokens can be read again")
		}
		failing = err != nil
		if more {
			continue
		}
		if _, err := wait.Signal(ctx, l.hints, interval); err != nil {
			return nil
		}
	}
}

// Look makes Run read the table at once. It does not block.
func (l *List) Look() {
	select {
	case l.hints <- struct{}{}:
	default:
	}
}

// Check returns an error while this process does not know which tokens are revoked. The process
// must then admit no tokens. The text of the error may be shown to clients.
func (l *List) Check() error {
	if l.known.Load() == nil {
		if next := l.next.Load(); next != nil {
			return fmt.Errorf("the revoked tokens are still being read: %d users so far", next.users.Load())
		}
		return errors.New("the revoked tokens were not read yet")
	}
	if age := time.Since(*l.readAt.Load()); age > staleAfter {
		return fmt.Errorf("the revoked tokens could not be read for %s", age.Round(time.Second))
	}
	return nil
}

// Revoked reports whether tokens of a user that were issued at issuedAt are revoked. If
// issuedAt is zero, since the token does not say when it was issued, any revocation of the user
// applies.
func (l *List) Revoked(userID string, issuedAt time.Time) bool {
	return slices.ContainsFunc(l.tables(), func(t *table) bool { return t.revoked(userID, issuedAt) })
}

// tables returns the tables that may have a revocation.
func (l *List) tables() (all []*table) {
	// Load next first: readOlder stores next in known before it sets next to nil.
	if next := l.next.Load(); next != nil {
		all = append(all, next)
	}
	if known := l.known.Load(); known != nil {
		all = append(all, known)
	}
	return all
}

// PartialReadError means that End has stored the revocation, but this process could not read it
// back. This process does not end the connections or refuse the tokens until it can read the
// revocation.
type PartialReadError struct{ Err error }

// Error implements error.
func (e *PartialReadError) Error() string { return "read the stored revocation: " + e.Err.Error() }

// Unwrap returns the error of the read.
func (e *PartialReadError) Unwrap() error { return e.Err }

// End ends the connections of a user. If before is not zero, it also revokes the user's tokens
// that were issued before that time. It returns the time that is now in force for the user: the
// latest time given so far, or zero if there was none. A time that an earlier call gave and
// that is still in the future counts as the present time.
//
// When End returns nil, this process refuses the tokens. Every other process refuses them
// within a second; a process that cannot read the table admits no tokens at all after ten
// seconds. End fails with a [*PartialReadError] if it has stored the revocation, but this
// process could not read it before ctx was done.
func (l *List) End(ctx context.Context, userID string, before time.Time) (time.Time, error) {
	holds, err := l.write(ctx, userID, before)
	if err != nil {
		return time.Time{}, fmt.Errorf("end the connections of a user: %w", err)
	}
	if err := l.follow(ctx); err != nil {
		l.Look()
		return time.Time{}, &PartialReadError{err}
	}
	return holds, nil
}

func (l *List) write(ctx context.Context, userID string, before time.Time) (time.Time, error) {
	select {
	case l.ending <- struct{}{}:
	case <-ctx.Done():
		return time.Time{}, context.Cause(ctx)
	}
	defer func() { <-l.ending }()
	var given, holds *time.Time
	if !before.IsZero() {
		given = &before
	}
	if err := l.pool.QueryRow(ctx, statements.Get("end"), userID, given).Scan(&holds); err != nil || holds == nil {
		return time.Time{}, err
	}
	return *holds, nil
}
