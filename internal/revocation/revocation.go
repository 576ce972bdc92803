// Package revocation remembers which tokens of users are revoked, and which users are
// to be disconnected, in a table that all processes read.
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

	"github.com/badged/badged/internal/sqlfile"
)

const (
	// interval is how often the table is read: half of the second within which every
	// process knows what was revoked.
	interval = 500 * time.Millisecond
	// pageRows is how many rows one statement reads: some 10 ms.
	pageRows = 5000
	// pageTimeout bounds one statement: one that hangs on a dead connection delays those
	// after it.
	pageTimeout = 2 * time.Second
	// staleAfter is how long what was read last counts as what is revoked. Then the process
	// is not ready and admits no tokens, so that no process accepts one longer than that after
	// it was revoked.
	staleAfter = 10 * time.Second
)

//go:embed revocation.sql
var statementsText string

var statements = sqlfile.Parse(statementsText)

// Config configures a List.
type Config struct {
	// Ended is called with users whose connections are to end, after Revoked knows their
	// revoked tokens. It must not block, and is called by one goroutine at
	// a time. Nil means that there are no connections.
	Ended func(userIDs []string)
	// Connected returns the users with connections. Ids of erased users are stored nowhere,
	// so when their tokens are revoked, the list looks for them among the connected users and
	// calls Ended. Nil means that there are no connections.
	Connected func() []string
	// MaxLifetime is the longest time for which a token may be valid after it was
	// issued. What is revoked is forgotten after it; never if it is 0.
	MaxLifetime time.Duration
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Registerer registers the metrics, unless nil.
	Registerer prometheus.Registerer
}

// List is what the table says. It is safe for concurrent use.
type List struct {
	cfg   Config
	pool  *pgxpool.Pool
	hints chan struct{}

	// known is what was revoked, nil until all rows were read once, and next what is read of a
	// database that was not seen before, nil when all of it is known. A token is revoked if
	// either says so.
	known, next atomic.Pointer[table]
	// readAt is when the last read began that found all that is new.
	readAt atomic.Pointer[time.Time]

	// reading has room for the one that reads. It guards the rest.
	reading chan struct{}
	// database and last say up to where the table was read. The rows up to older, which were
	// there before, are to be read if next is set.
	database    string
	last, older int64
	// ending has room for the one that writes. Others could take all connections.
	ending chan struct{}

	failed prometheus.Counter
}

// New returns a list of a database of which nothing was read. Call Load or Run.
func New(pool *pgxpool.Pool, cfg Config) *List {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	auto := promauto.With(cfg.Registerer)
	l := &List{
		cfg: cfg, pool: pool, hints: make(chan struct{}, 1), reading: make(chan struct{}, 1), ending: make(chan struct{}, 1),
		last: math.MaxInt64, // no row is read before it is known which database has them
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

// Load reads the table for the first time, or what is new. After an error, Run goes on from
// where it stopped.
func (l *List) Load(ctx context.Context) error {
	for {
		if more, err := l.read(ctx); !more || err != nil {
			return err
		}
	}
}

// read takes over what is new, and the next page of what is old. It reports whether there are
// more of these.
func (l *List) read(ctx context.Context) (more bool, err error) {
	if err := l.follow(ctx); err != nil {
		return false, err
	}
	return l.readOlder(ctx)
}

// Run keeps the list up to date until ctx is done. It returns nil: while the table
// cannot be read, the list stays as it is.
func (l *List) Run(ctx context.Context) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	failing := false
	for {
		more, err := l.read(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			l.failed.Inc()
			if !failing {
				l.cfg.Logger.WarnContext(ctx, "cannot read which tokens are revoked; trying again twice a second, and those known before stay revoked", "error", err)
			}
		case failing:
			l.cfg.Logger.InfoContext(ctx, "which tokens are revoked can be read again")
		}
		failing = err != nil
		if more {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-l.hints:
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

// Check returns an error while it is not known which tokens are revoked: none is to be
// admitted. Its text is public.
func (l *List) Check() error {
	if l.known.Load() == nil {
		if next := l.next.Load(); next != nil {
			return fmt.Errorf("which tokens are revoked is still being read: those of %d users are known", next.users.Load())
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

// tables returns what is known.
func (l *List) tables() (all []*table) {
	if next := l.next.Load(); next != nil { // first: readOlder makes it known before it is nil
		all = append(all, next)
	}
	if known := l.known.Load(); known != nil {
		all = append(all, known)
	}
	return all
}

// PartialReadError means that what End did is stored, but that this process has not read it: its
// connections are not ended, and tokens not refused. It does so once it can read.
type PartialReadError struct{ Err error }

// Error implements error.
func (e *PartialReadError) Error() string { return "read what was revoked: " + e.Err.Error() }

// Unwrap returns why.
func (e *PartialReadError) Unwrap() error { return e.Err }

// End ends the connections of a user, and revokes the tokens issued before a moment
// unless that is zero. It returns the moment that holds: the latest that was ever
// given, or zero. When it returns nil, this process knows, and the others will within
// a second, or admit no tokens after ten. It fails with an [*PartialReadError] if this process
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
