// Package expiry reads conversations that got nothing new for long, and ends levels
// whose time has come, by appending events to the log.
//
// It does not know the loop that folds, and writes no table of badges. ADR 14 has the
// reasons.
package expiry

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/dbclock"
	"github.com/badged/badged/internal/defaults"
	"github.com/badged/badged/internal/pgsession"
	"github.com/badged/badged/internal/sqlfile"
	"github.com/badged/badged/internal/wait"
)

//go:embed expiry.sql
var statementsText string

var statements = sqlfile.Parse(statementsText)

// Source is the source of the events that a sweep appends.
const Source = "badged/expiry"

// OtherCategories, as a key of Config.After, stands for every category that no other key
// covers.
const OtherCategories = "*"

// MinExpireAfter is the shortest time after which conversations can expire:
// the time of the last delivery is stored in hours.
const MinExpireAfter = time.Hour

// lockClass and lockKey are the advisory lock of the instance that sweeps.
const (
	lockClass = 0x62616465 // "bade"
	lockKey   = 0
)

// Pauses between attempts while the database does not answer.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 2 * time.Second
)

// queryTimeout is far more than a query takes in a healthy database.
const queryTimeout = 30 * time.Second

// Appender appends events to the log, also those that only badged writes, as a projector
// does.
type Appender interface {
	Append(ctx context.Context, evs ...events.Event) (events.Receipt, error)
}

// Config configures a Sweeper. Pool, Log and Layouts are required.
type Config struct {
	// Pool says how to connect: the sweep uses its own connection.
	Pool *pgxpool.Pool
	// Log is a projector, not an [events.Log]: that refuses what a sweep appends.
	Log Appender
	// Layouts says in which partition each user is: the log, in most cases.
	Layouts events.Layouts
	// Held returns the partitions that the database holds, if it is one of several.
	// Default: all.
	Held func() []int
	// After is, by category, how long a conversation must have been without
	// deliveries to expire: at least MinExpireAfter. The longest category applies that
	// covers that of the conversation. Other categories never expire. Without any, the sweeper only ends levels.
	After map[string]time.Duration
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Metrics defaults to metrics that are not registered.
	Metrics *Metrics

	// Interval is the time between two sweeps. Default 5m.
	Interval time.Duration
	// LevelInterval is the time between two searches for levels to end. Default 10s.
	LevelInterval time.Duration
	// StandbyInterval is how often an instance that does not sweep tries to
	// take over. Default 5s.
	StandbyInterval time.Duration
	// BatchSize is the most conversations of users that are expired in one
	// transaction. Default 1,000, at most events.MaxUsers.
	BatchSize int
	// Pause is the least time between two batches; the next one also waits
	// until the last is folded. Default 100ms.
	Pause time.Duration
}

// Sweeper finds conversations with something unread and no recent delivery,
// and appends events that read them. Only the fold of those events changes the
// tables. Any number of sweepers may run on one database: one sweeps, and
// another takes over if it dies.
type Sweeper struct {
	cfg Config
	log *slog.Logger
	// now returns the time of the database.
	now func(ctx context.Context, q pgsession.Querier) (time.Time, error)
	// foldTimeout is how long a sweep waits for a batch to be folded before it
	// leaves the partition to the next sweep.
	foldTimeout time.Duration
	// pageSize is the most conversations that a query returns. It is more than
	// a batch because one hour may have very many, and each query sorts them
	// all.
	pageSize int
}

// New returns a sweeper that does nothing until Run.
func New(cfg Config) (*Sweeper, error) {
	if cfg.Pool == nil || cfg.Log == nil || cfg.Layouts == nil {
		return nil, errors.New("expiry: Pool, Log and Layouts are required")
	}
	if _, refuses := cfg.Log.(*events.Log); refuses {
		return nil, errors.New("expiry: an events.Log refuses what a sweep appends: set Log to the projector")
	}
	for category, after := range cfg.After {
		if reason := events.CheckCategory(category); reason != "" {
			return nil, fmt.Errorf("expiry: category %q: %s", category, reason)
		}
		if after < MinExpireAfter {
			return nil, fmt.Errorf("expiry: category %q: After must be at least %s, is %s", category, MinExpireAfter, after)
		}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics(nil)
	}
	if err := cmp.Or(
		defaults.Set("Interval", &cfg.Interval, 5*time.Minute),
		defaults.Set("LevelInterval", &cfg.LevelInterval, 10*time.Second),
		defaults.Set("StandbyInterval", &cfg.StandbyInterval, 5*time.Second),
		defaults.Set("BatchSize", &cfg.BatchSize, 1000),
		defaults.Set("Pause", &cfg.Pause, 100*time.Millisecond),
	); err != nil {
		return nil, fmt.Errorf("expiry: %w", err)
	}
	cfg.BatchSize = min(cfg.BatchSize, events.MaxUsers)
	return &Sweeper{cfg: cfg, log: cfg.Logger, now: pgsession.AgreedNow, foldTimeout: 30 * time.Second, pageSize: 10 * cfg.BatchSize}, nil
}

// Run sweeps, if no other instance does, until ctx is done and then returns
// nil.
func (x *Sweeper) Run(ctx context.Context) error {
	wait.Backoff{First: firstRetry, Last: lastRetry}.Retry(ctx, x.session, func(err error, pause time.Duration) {
		x.cfg.Metrics.failed.Inc()
		x.log.WarnContext(ctx, "the expiry session ended, will try again", "error", err, "in", pause)
	})
	return nil
}

// session sweeps on one connection, once that has the lock, until ctx is done
// or the connection fails. All reads of a sweep use the connection, so that a
// sweeper that has lost the lock notices before it appends another batch. The
// lock only saves work: events that two sweepers append at once count once or
// change nothing.
func (x *Sweeper) session(ctx context.Context) error {
	conn, err := pgsession.OpenSession(ctx, x.cfg.Pool.Config().ConnConfig, "badged expiry")
	if err != nil {
		return err
	}
	defer func() {
		pgsession.CloseSession(ctx, conn)
		x.cfg.Metrics.lastSweep.Set(0)
	}()
	var next time.Time // of the sweep
	for held := false; ; {
		pause := x.cfg.StandbyInterval
		if !held {
			if held, err = x.take(ctx, conn); err != nil {
				return err
			}
			if held {
				x.log.InfoContext(ctx, "this instance runs the expiry sweep")
			}
		}
		if held {
			err := x.work(ctx, conn, &next)
			if differ, ok := errors.AsType[*dbclock.DifferError](err); ok {
				x.log.WarnContext(ctx, "nothing expires by this instance until the clocks agree", "error", differ)
				held, err = false, x.leave(ctx, conn) // another one may have the right clock
			}
			if err != nil {
				return err
			}
			if held {
				pause = x.cfg.LevelInterval
				if len(x.cfg.After) > 0 {
					pause = min(pause, time.Until(next))
				}
			}
		}
		if wait.For(ctx, pause) != nil {
			return nil
		}
	}
}

// work ends levels, and sweeps if it is time for the next sweep. It fails with a
// [*dbclock.DifferError], and does nothing, while the clocks of this process and of the
// database differ: what has expired stays so.
func (x *Sweeper) work(ctx context.Context, conn *pgx.Conn, next *time.Time) error {
	now, err := x.now(ctx, conn)
	if err != nil {
		return err
	}
	if err := x.endLevels(ctx, conn); err != nil {
		return err
	}
	if len(x.cfg.After) == 0 || time.Now().Before(*next) {
		return nil
	}
	if err := x.sweep(ctx, conn, now); err != nil {
		return err
	}
	*next = time.Now().Add(x.cfg.Interval)
	return nil
}

// take tries to take the lock of the sweep.
func (x *Sweeper) take(ctx context.Context, conn *pgx.Conn) (held bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	if err := conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1, $2)`, lockClass, lockKey).Scan(&held); err != nil {
		return false, fmt.Errorf("take the lock of the sweep: %w", err)
	}
	return held, nil
}

// leave lets another instance take the lock of the sweep.
func (x *Sweeper) leave(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	if _, err := conn.Exec(ctx, `SELECT pg_advisory_unlock($1, $2)`, lockClass, lockKey); err != nil {
		return fmt.Errorf("leave the lock of the sweep: %w", err)
	}
	return nil
}
