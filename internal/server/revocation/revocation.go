// Package revocation records in a table the revoked tokens of users, and the users who must be
// disconnected. All processes read this table.
//
// It does not know sessions: callers end connections. ADR 69 has the reasons.
package revocation

import (
	"cmp"
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

	"github.com/badged/badged/internal/base/metric"
	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/pg/sqlfile"
)

const (
	// interval is the time between two reads of the table. It is half a second, since every
	// process must know a revocation within a second.
	interval = 500 * time.Millisecond
	// pageRows is the maximum number of rows that one statement reads. Such a statement takes about
	// 10 ms.
	pageRows = 5000
	// pageTimeout limits the time of one statement: without a limit, a statement on a dead
	// connection would block all later reads.
	pageTimeout = 2 * time.Second
	// staleAfter is the maximum age of the last successful read. If that read is older, the
	// process is not ready and admits no tokens. So no process accepts a token for longer than
	// staleAfter after its revocation.
	staleAfter = 10 * time.Second
)

//go:embed revocation.sql
var statementsText string

var statements = sqlfile.Parse(statementsText)

// Config configures a List.
type Config struct {
	// Ended is called with users whose connections must end. If tokens of these users were
	// revoked, Revoked already reports this at the time of the call. Ended must not block. It
	// is called from one goroutine at a time. Nil means that there are no connections.
	Ended func(userIDs []string)
	// Connected returns the users with connections. It is used when an erased user must be
	// disconnected: the table has only a digest of this user's id. So the list computes the
	// digests of all connected users, and calls Ended for the user with the same digest. Nil
	// means that there are no connections.
	Connected func() []string
	// MaxLifetime is the longest time for which a token may be valid after it was issued. A
	// revocation is deleted when all tokens to which it applies have expired. If MaxLifetime is
	// 0, revocations are never deleted.
	MaxLifetime time.Duration
	// Logger defaults to a logger that discards everything.
	Logger *slog.Logger
	// Registerer registers the metrics, unless nil.
	Registerer prometheus.Registerer
}

// List has the revocations of the table in memory. It is safe for concurrent use.
type List struct {
	cfg   Config
	pool  *pgxpool.Pool
	hints chan struct{}

	// known has the revocations of the database; it is nil until all rows were read once. next
	// is set while all rows are read, at the start and again if the name of the database
	// changes. It collects the rows, and replaces known when all rows are read. A token is
	// revoked if known or next has a revocation for it.
	known, next atomic.Pointer[table]
	// readAt is the start of the last read that has reached the newest row.
	readAt atomic.Pointer[time.Time]

	// reading is a semaphore that one goroutine at a time can acquire. It guards database, last
	// and older. A goroutine must acquire it before it reads new rows.
	reading chan struct{}
	// database names the database from which the rows were read. New rows are the rows with a
	// seq above last. Old rows are the rows that existed when the database was first seen. If
	// next is set, the old rows with a seq up to `older` have not been read yet.
	database    string
	last, older int64
	// ending is a semaphore: only one call of write runs at a time. Concurrent writes would
	// wait for the same row lock, and could occupy all database connections.
	ending chan struct{}

	failed prometheus.Counter
}

// New returns a list that has read nothing yet. Call Load or Run.
func New(pool *pgxpool.Pool, cfg Config) *List {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	l := &List{
		cfg: cfg, pool: pool, hints: make(chan struct{}, 1), reading: make(chan struct{}, 1), ending: make(chan struct{}, 1),
		last:   math.MaxInt64, // until the database is known, no row counts as new
		failed: metric.Counter(cfg.Registerer, "badged_auth_revocation_read_errors_total", "Reads of revocations that failed. Until a read succeeds, this process knows only earlier revocations."),
	}
	metric.GaugeFunc(cfg.Registerer, "badged_auth_revoked_users", "Users with revoked tokens that this process knows.", func() float64 {
		users := int64(0)
		for _, t := range l.tables() {
			users = max(users, t.users.Load())
		}
		return float64(users)
	})
	metric.GaugeFunc(cfg.Registerer, "badged_auth_revocation_age_seconds", "Seconds since the revocations were last read. After 10 seconds the process accepts no tokens. NaN before the first read.", func() float64 {
		if l.known.Load() == nil {
			return math.NaN()
		}
		return time.Since(*l.readAt.Load()).Seconds()
	})
	return l
}

// Load reads the whole table when it is first called, and only new rows when it is called
// again. If it fails, Run continues the read where Load stopped.
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
	wait.Wake(l.hints)
}

// Check returns an error while this process does not know which tokens are revoked. While Check
// returns an error, the process must admit no tokens. The text of the error may be shown to
// clients.
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

// Revoked reports whether tokens of a user that were issued at issuedAt are revoked. issuedAt
// is zero if a token does not say when it was issued: any revocation of the user applies to
// this token.
func (l *List) Revoked(userID string, issuedAt time.Time) bool {
	return slices.ContainsFunc(l.tables(), func(t *table) bool { return t.revoked(userID, issuedAt) })
}

// tables returns next and known, without nil: a revocation may be in either of them.
func (l *List) tables() (all []*table) {
	// Load next before known. Otherwise a concurrent readOlder, which stores next in known and
	// then sets next to nil, could hide the rows of next.
	if next := l.next.Load(); next != nil {
		all = append(all, next)
	}
	if known := l.known.Load(); known != nil {
		all = append(all, known)
	}
	return all
}

// PartialReadError means that End has stored the revocation, but this process could not read it
// back. Until this process can read the revocation, it neither ends connections nor refuses
// tokens because of it.
type PartialReadError struct{ Err error }

// Error implements error.
func (e *PartialReadError) Error() string { return "read the stored revocation: " + e.Err.Error() }

// Unwrap returns the error of the read.
func (e *PartialReadError) Unwrap() error { return e.Err }

// End ends the connections of a user. If before is not zero, it also revokes the user's tokens
// that were issued before that time. It returns the time before which tokens of the user are
// now revoked: the latest `before` of all calls for the user, or zero if all were zero. If the
// stored time of earlier calls is in the future, it is first replaced by the current time.
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
