// Package revocation remembers which tokens of users are revoked, and which users must be
// disconnected, in a table that all processes read.
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
	// interval is how often the table is read. It is half a second, since every process must
	// learn of a revocation within a second.
	interval = 500 * time.Millisecond
	// pageRows is the most rows that one statement reads, in about 10 ms.
	pageRows = 5000
	// pageTimeout bounds one statement, because a statement that hangs on a dead connection
	// delays the statements after it.
	pageTimeout = 2 * time.Second
	// staleAfter is the age of the last successful read after which the process is not ready
	// and admits no tokens. So no process accepts a revoked token for longer than staleAfter.
	staleAfter = 10 * time.Second
)

//go:embed revocation.sql
var statementsText string

var statements = sqlfile.Parse(statementsText)

// Config configures a List.
type Config struct {
	// Ended is called with users whose connections must end, after Revoked reports their
	// tokens as revoked. It must not block. Only one goroutine calls it at a time. Nil means
	// that there are no connections.
	Ended func(userIDs []string)
	// Connected returns the users with connections. Ids of erased users are stored nowhere, so
	// when tokens of an erased user are revoked, the list compares the digests of the
	// connected users and calls Ended. Nil means that there are no connections.
	Connected func() []string
	// MaxLifetime is the longest time for which a token may be valid after it was issued. A
	// revocation is forgotten some time after MaxLifetime; never if it is 0.
	MaxLifetime time.Duration
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Registerer registers the metrics, unless nil.
	Registerer prometheus.Registerer
}

// List is the content of the table in memory. It is safe for concurrent use.
type List struct {
	cfg   Config
	pool  *pgxpool.Pool
	hints chan struct{}

	// known has the revocations of the database, and is nil until all rows were read once.
	// next collects the rows of a database that this process has not seen before, and is nil
	// once they are all in known. A token is revoked if one of the two tables says so.
	known, next atomic.Pointer[table]
	// readAt is the start of the last read that reached the newest row.
	readAt atomic.Pointer[time.Time]

	// reading is a semaphore that one goroutine at a time can acquire. It guards database,
	// last and older, and is held while new rows are read.
	reading chan struct{}
	// database names the database of the rows. The rows after number last are still to be
	// read. If next is set, the rows up to number older are to be read too: they existed when
	// the database was first seen.
	database    string
	last, older int64
	// ending is a semaphore that admits one writing call at a time. Concurrent writes would
	// wait for the same row lock, and could use up all connections.
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
		last: math.MaxInt64, // until the database is known, no row is newer than last
		failed: auto.NewCounter(prometheus.CounterOpts{
			Namespace: "badged", Subsystem: "auth", Name: "revocation_read_errors_total",
			Help: "Reads of the revoked tokens that failed; until one succeeds, this process knows the earlier ones.",
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
		Help: "Time since the revoked tokens were last read; after 10 seconds the process admits no tokens. NaN until they were read once.",
	}, func() float64 {
		if l.known.Load() == nil {
			return math.NaN()
		}
		return time.Since(*l.readAt.Load()).Seconds()
	})
	return l
}

// Load reads the whole table at the first call, and only new rows at later calls. After an
// error, Run continues where Load stopped.
func (l *List) Load(ctx context.Context) error {
	for {
		if more, err := l.read(ctx); !more || err != nil {
			return err
		}
	}
}

// read reads all new rows, and the next page of old ones. It reports whether there are more
// old ones.
func (l *List) read(ctx context.Context) (more bool, err error) {
	if err := l.follow(ctx); err != nil {
		return false, err
	}
	return l.readOlder(ctx)
}

// Run keeps the list up to date until ctx is done, and returns nil. While the table cannot be
// read, the list stays as it is.
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
			l.cfg.Logger.InfoContext(ctx, "which tokens are revoked can be read again")
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

// Look makes Run read the table now. It does not block.
func (l *List) Look() {
	select {
	case l.hints <- struct{}{}:
	default:
	}
}

// Check returns an error while this process cannot say which tokens are revoked. The process
// must then admit no tokens. The text of the error is public.
func (l *List) Check() error {
	if l.known.Load() == nil {
		if next := l.next.Load(); next != nil {
			return fmt.Errorf("which tokens are revoked is still being read: %d users so far", next.users.Load())
		}
		return errors.New("which tokens are revoked was not read yet")
	}
	if age := time.Since(*l.readAt.Load()); age > staleAfter {
		return fmt.Errorf("which tokens are revoked could not be read for %s", age.Round(time.Second))
	}
	return nil
}

// Revoked reports whether tokens of a user that were issued at a time are revoked. A
// token that does not say when it was issued counts as older than any revocation.
func (l *List) Revoked(userID string, issuedAt time.Time) bool {
	return slices.ContainsFunc(l.tables(), func(t *table) bool { return t.revoked(userID, issuedAt) })
}

// tables returns the tables that may have a revocation.
func (l *List) tables() (all []*table) {
	if next := l.next.Load(); next != nil { // first: readOlder stores it in known before it sets next to nil
		all = append(all, next)
	}
	if known := l.known.Load(); known != nil {
		all = append(all, known)
	}
	return all
}

// PartialReadError means that End has stored the revocation, but this process could not read
// it back: connections are not ended and tokens not refused until it can.
type PartialReadError struct{ Err error }

// Error implements error.
func (e *PartialReadError) Error() string { return "read what was revoked: " + e.Err.Error() }

// Unwrap returns the error of the read.
func (e *PartialReadError) Unwrap() error { return e.Err }

// End ends the connections of a user, and revokes the tokens issued before a moment, unless
// the moment is zero. It returns the moment in force: the latest that was ever given for the
// user, or zero. After nil, this process refuses the tokens. Every other process refuses them
// within a second; a process that cannot read the table admits no tokens at all after ten
// seconds. End fails with a [*PartialReadError] if the revocation is stored and this process
// cannot read it before ctx is done.
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
