// Package revocation remembers which tokens of users are revoked, and which users are
// to be disconnected, in a table that all processes read.
package revocation

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/badged/badged/internal/sqlfile"
)

const (
	// interval is how often the table is read: half of the second within which every
	// process knows what was revoked.
	interval = 500 * time.Millisecond
	// readTimeout bounds a read: one that hangs on a dead connection delays those
	// after it.
	readTimeout = 2 * time.Second
	// keepEnds is how long a row is kept that revokes nothing, for processes that
	// cannot read the table. One that comes back later has lost its clients.
	keepEnds = time.Hour
)

//go:embed revocation.sql
var statementsText string

var statements = sqlfile.Parse(statementsText)

// Config configures a List.
type Config struct {
	// Ended is called with users whose connections are to end, when Revoked knows
	// what of theirs is revoked. It must not block, and is called by one goroutine at
	// a time. Nil means that there are no connections.
	Ended func(userIDs []string)
	// Connected returns the users with connections. It is called when tokens of users who
	// are erased are revoked, whose ids are stored nowhere: Ended is called with those of
	// them that are connected. Nil means that there are no connections.
	Connected func() []string
	// MaxLifetime is the longest time for which a token may be valid after it was
	// issued. What is revoked of erased users is forgotten after it; never if it is 0.
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

	mu sync.RWMutex
	// before has the moment before which tokens are revoked, by user.
	before map[string]time.Time
	// erased has the same of users who were erased, by the digest of their ids with the
	// secret.
	erased map[[sha256.Size]byte]time.Time
	secret []byte

	// reading guards the rest.
	reading sync.Mutex
	// last is the number up to which the table was read.
	last int64
	// whole is set if the next read must take all rows: the one before failed, so the
	// database may be another since, or rows were deleted.
	whole bool

	users  prometheus.Gauge
	failed prometheus.Counter
}

// New returns a list in which nothing is revoked. Call Load before it is asked.
func New(cfg Config) *List {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	auto := promauto.With(cfg.Registerer)
	return &List{
		cfg: cfg, hints: make(chan struct{}, 1), before: map[string]time.Time{}, erased: map[[sha256.Size]byte]time.Time{}, whole: true,
		users: auto.NewGauge(prometheus.GaugeOpts{
			Namespace: "badged", Subsystem: "auth", Name: "revoked_users", Help: "Users with revoked tokens.",
		}),
		failed: auto.NewCounter(prometheus.CounterOpts{
			Namespace: "badged", Subsystem: "auth", Name: "revocation_read_errors_total",
			Help: "Reads of the revoked tokens that failed; until one succeeds, this process knows those of before.",
		}),
	}
}

// Load reads the table for the first time, from a pool that later reads use too.
func (l *List) Load(ctx context.Context, pool *pgxpool.Pool) error {
	l.pool = pool
	return l.read(ctx)
}

// Run keeps the list up to date until ctx is done. It returns nil: while the table
// cannot be read, the list stays as it is.
func (l *List) Run(ctx context.Context) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	forget := time.NewTicker(keepEnds)
	defer forget.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-l.hints:
		case <-forget.C:
			if err := l.forget(ctx); err != nil && ctx.Err() == nil {
				l.cfg.Logger.WarnContext(ctx, "cannot delete old rows of badged.revocations; trying again in an hour", "error", err)
			}
		}
		if err := l.read(ctx); err != nil && ctx.Err() == nil {
			l.failed.Inc()
			l.cfg.Logger.WarnContext(ctx, "cannot read which tokens are revoked; those known before stay revoked", "error", err)
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

// Revoked reports whether tokens of a user that were issued at a time are revoked. A
// token that does not say when it was issued counts as older than any revocation.
func (l *List) Revoked(userID string, issuedAt time.Time) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if before, ok := l.before[userID]; ok && issuedAt.Before(before) {
		return true
	}
	if len(l.erased) == 0 { // as mostly
		return false
	}
	before, ok := l.erased[digestOf(l.secret, userID)]
	return ok && issuedAt.Before(before)
}

// End ends the connections of a user, and revokes the tokens issued before a moment
// unless that is zero. It returns the moment that holds: the latest that was ever
// given, or zero. When it returns nil, this process knows, and the others will within
// a second.
func (l *List) End(ctx context.Context, userID string, before time.Time) (time.Time, error) {
	var given, holds *time.Time
	if !before.IsZero() {
		given = &before
	}
	if err := l.pool.QueryRow(ctx, statements.Get("end"), userID, given).Scan(&holds); err != nil {
		return time.Time{}, fmt.Errorf("end the connections of a user: %w", err)
	}
	if err := l.read(ctx); err != nil {
		l.Look() // it is durable, so it is no error of this call
	}
	if holds == nil {
		return time.Time{}, nil
	}
	return *holds, nil
}

// row is a row of the table.
type row struct {
	seq    int64
	userID string
	before *time.Time
	// digest stands for userID if the user was erased.
	digest []byte
}

// read takes over what is new in the table.
func (l *List) read(ctx context.Context) error {
	l.reading.Lock()
	defer l.reading.Unlock()
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	from := l.last
	if l.whole {
		from = 0
	}
	last, rows, err := l.newer(ctx, from)
	if err == nil && last < l.last { // a backup was restored
		l.last, l.whole = 0, true
		last, rows, err = l.newer(ctx, 0)
	}
	if err != nil {
		l.whole = true
		return err
	}
	var secret []byte
	if l.whole {
		if err := l.pool.QueryRow(ctx, statements.Get("read the secret")).Scan(&secret); err != nil {
			return fmt.Errorf("read badged.revocation_secret: %w", err)
		}
	}
	var ended []string
	var erased [][sha256.Size]byte
	l.mu.Lock()
	if l.whole {
		l.before = make(map[string]time.Time, len(rows))
		l.erased = map[[sha256.Size]byte]time.Time{}
		l.secret = secret
	}
	for _, r := range rows {
		if r.digest != nil {
			digest := [sha256.Size]byte(r.digest)
			if l.erased[digest] = *r.before; r.seq > l.last {
				erased = append(erased, digest)
			}
			continue
		}
		if r.before != nil {
			l.before[r.userID] = *r.before
		}
		if r.seq > l.last {
			ended = append(ended, r.userID)
		}
	}
	users := len(l.before) + len(l.erased)
	l.mu.Unlock()
	l.last, l.whole = last, false
	l.users.Set(float64(users))
	ended = append(ended, l.connected(erased)...)
	if l.cfg.Ended != nil && len(ended) > 0 {
		l.cfg.Ended(ended)
	}
	return nil
}

// connected returns the connected users whose ids have one of these digests.
func (l *List) connected(digests [][sha256.Size]byte) (found []string) {
	if len(digests) == 0 || l.cfg.Connected == nil {
		return nil
	}
	for _, userID := range l.cfg.Connected() {
		if slices.Contains(digests, digestOf(l.secret, userID)) { // changed by read only
			found = append(found, userID)
		}
	}
	return found
}

// digestOf returns what stands for an erased user.
func digestOf(secret []byte, userID string) [sha256.Size]byte {
	return sha256.Sum256(slices.Concat(secret, []byte(userID)))
}

// newer returns the rows with a number above one, and the last number given.
func (l *List) newer(ctx context.Context, than int64) (last int64, all []row, err error) {
	rows, _ := l.pool.Query(ctx, statements.Get("read what is new"), than)
	var r struct {
		seq    *int64
		userID *string
		before *time.Time
		digest []byte
	}
	_, err = pgx.ForEachRow(rows, []any{&last, &r.seq, &r.userID, &r.before, &r.digest}, func() error {
		switch {
		case r.seq == nil: // nothing is new
		case r.userID == nil:
			all = append(all, row{seq: *r.seq, before: r.before, digest: slices.Clone(r.digest)})
		default:
			all = append(all, row{seq: *r.seq, userID: *r.userID, before: r.before})
		}
		return nil
	})
	if err != nil {
		return 0, nil, fmt.Errorf("read badged.revocations: %w", err)
	}
	return last, all, nil
}

// forget deletes the rows that revoke nothing and that every process has read, and
// those of erased users whose tokens have expired.
func (l *List) forget(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if _, err := l.pool.Exec(ctx, statements.Get("forget"), keepEnds.Seconds()); err != nil {
		return fmt.Errorf("delete from badged.revocations: %w", err)
	}
	if l.cfg.MaxLifetime > 0 {
		if _, err := l.pool.Exec(ctx, statements.Get("forget the erased"), (l.cfg.MaxLifetime + keepEnds).Seconds()); err != nil {
			return fmt.Errorf("delete from badged.erased_revocations: %w", err)
		}
	}
	l.reading.Lock()
	defer l.reading.Unlock()
	l.whole = true // an operator may have deleted others
	return nil
}
