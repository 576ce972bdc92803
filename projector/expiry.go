package projector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
)

// ExpirySource is the source of the events that the expiry sweep writes.
const ExpirySource = "badged/expiry"

// OtherCategories, as a key of ExpiryConfig.After, stands for every category
// that is not a key itself.
const OtherCategories = "*"

// MinExpireAfter is the shortest time after which conversations can expire:
// when they were delivered to is kept by the hour.
const MinExpireAfter = time.Hour

// expiryLockClass and expiryLock are the advisory lock of the instance that
// sweeps.
const (
	expiryLockClass = 0x62616465 // "bade", as partitions have lockClass
	expiryLock      = 0
)

// expiryQueryTimeout is far more than a query takes of a database that answers.
const expiryQueryTimeout = 30 * time.Second

// Appender appends events to the log, as [events.Log] does.
type Appender interface {
	Append(ctx context.Context, evs ...events.Event) (events.Receipt, error)
}

// ExpiryConfig is what an expiry sweep works on and how. Pool, Log, Partitions
// and After are required.
type ExpiryConfig struct {
	// Pool says how to connect: the sweep has a connection of its own.
	Pool *pgxpool.Pool
	Log  Appender
	// Partitions is how many the log has.
	Partitions int
	// After is how long nothing must have been delivered to a conversation, by
	// category, for it to expire: at least MinExpireAfter. Conversations of
	// categories that it does not name never do.
	After map[string]time.Duration
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Metrics defaults to metrics that nobody sees.
	Metrics *ExpiryMetrics
	// Now tells the time. Default time.Now.
	Now func() time.Time

	// Interval is the time between two sweeps. Default 5m.
	Interval time.Duration
	// StandbyInterval is how often an instance that does not sweep looks
	// whether it is to. Default 5s.
	StandbyInterval time.Duration
	// BatchSize is the most conversations of users that are expired in one
	// transaction. Default 1,000, at most events.MaxUsers.
	BatchSize int
	// Pause is the time between two batches, at least: the next one also waits
	// until the last is folded. Default 100ms.
	Pause time.Duration
}

// Expiry looks for conversations with something unread to which nothing was
// delivered for long, and appends events that read them: the tables change by
// the fold of those only. Any number may run on one database: one of them
// sweeps, and another takes over from one that dies.
type Expiry struct {
	cfg ExpiryConfig
	log *slog.Logger
	// foldTimeout is how long a batch has to be folded, before a sweep leaves
	// the partition to the next one.
	foldTimeout time.Duration
	// pageSize is how many conversations a query finds at most: more than a
	// batch, since one hour may hold very many, and each query sorts them all.
	pageSize int
}

// NewExpiry returns an expiry sweep that does nothing until Run.
func NewExpiry(cfg ExpiryConfig) (*Expiry, error) {
	if cfg.Pool == nil || cfg.Log == nil || cfg.Partitions <= 0 || len(cfg.After) == 0 {
		return nil, errors.New("expiry: Pool, Log, Partitions and After are required")
	}
	for category, after := range cfg.After {
		if reason := events.CheckCategory(category); reason != "" {
			return nil, fmt.Errorf("expiry: category %q: %s", category, reason)
		}
		if after < MinExpireAfter {
			return nil, fmt.Errorf("expiry: category %q: must be at least %s, is %s", category, MinExpireAfter, after)
		}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Metrics == nil {
		cfg.Metrics = NewExpiryMetrics(nil)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Interval <= 0 {
		cfg.Interval = 5 * time.Minute
	}
	if cfg.StandbyInterval <= 0 {
		cfg.StandbyInterval = 5 * time.Second
	}
	if cfg.BatchSize <= 0 {
		cfg.BatchSize = 1000
	}
	cfg.BatchSize = min(cfg.BatchSize, events.MaxUsers)
	if cfg.Pause <= 0 {
		cfg.Pause = 100 * time.Millisecond
	}
	return &Expiry{cfg: cfg, log: cfg.Logger, foldTimeout: 30 * time.Second, pageSize: 10 * cfg.BatchSize}, nil
}

// Run sweeps, while no other instance does, until ctx is done and then returns
// nil.
func (x *Expiry) Run(ctx context.Context) error {
	backoff := firstBackoff
	for ctx.Err() == nil {
		start := time.Now()
		err := x.session(ctx)
		if ctx.Err() != nil {
			break
		}
		if time.Since(start) > lastBackoff {
			backoff = firstBackoff
		}
		x.cfg.Metrics.failed.Inc()
		x.log.WarnContext(ctx, "expiry session ended, will try again", "error", err, "in", backoff)
		pause(ctx, backoff)
		backoff = min(2*backoff, lastBackoff)
	}
	return nil
}

// pause waits, and reports whether ctx is not done.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// session sweeps on one connection, once that holds the lock, until ctx is done
// or the connection fails. What a sweep reads it reads on the connection, so
// that one that has lost the lock finds out before it appends another batch.
// That is economy: what two append at once counts once, or changes nothing.
func (x *Expiry) session(ctx context.Context) error {
	conn, err := OpenSession(ctx, x.cfg.Pool.Config().ConnConfig, "badged expiry")
	if err != nil {
		return err
	}
	defer func() { // which also releases the lock, and says so at once
		closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closeCtx) // it may be broken already
		x.cfg.Metrics.lastSweep.Set(0)
	}()
	for held := false; ; {
		wait := x.cfg.StandbyInterval
		if !held {
			if held, err = x.take(ctx, conn); err != nil {
				return err
			}
			if held {
				x.log.InfoContext(ctx, "expiry sweep runs here")
			}
		}
		if held {
			if err := x.sweep(ctx, conn); err != nil {
				return err
			}
			wait = x.cfg.Interval
		}
		if !pause(ctx, wait) {
			return nil
		}
	}
}

// take tries to become the one that sweeps.
func (x *Expiry) take(ctx context.Context, conn *pgx.Conn) (held bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, expiryQueryTimeout)
	defer cancel()
	if err := conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1, $2)`, expiryLockClass, expiryLock).Scan(&held); err != nil {
		return false, fmt.Errorf("take the lock of the sweep: %w", err)
	}
	return held, nil
}
