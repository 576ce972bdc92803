// Package expiry marks conversations without recent deliveries or marks as read. It also ends
// levels that were set until a time; a level is what a conversation adds to the total. It does
// both by appending events to the log.
//
// It does not know the projector's loop, and does not write the tables of badges. ADR 14 has
// the reasons.
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
	"github.com/badged/badged/internal/base/defaults"
	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/pg/dbclock"
	"github.com/badged/badged/internal/pg/pgsession"
	"github.com/badged/badged/internal/pg/query"
	"github.com/badged/badged/internal/pg/sqlfile"
)

//go:embed expiry.sql
var statementsText string

var statements = sqlfile.Parse(statementsText)

// Source is the source of the events that a sweep appends.
const Source = "badged/expiry"

// OtherCategories is the key in Config.After for categories that no other key covers.
const OtherCategories = "*"

// MinExpireAfter is the shortest time after which conversations can expire. It is an hour,
// because the time of the last delivery is stored in hours.
const MinExpireAfter = time.Hour

// lockClass and lockKey are the key of the advisory lock that the sweeping instance holds.
const (
	lockClass = 0x62616465 // "bade"
	lockKey   = 0
)

// Bounds of the pause between attempts while the database does not answer.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 2 * time.Second
)

// queryTimeout is far longer than any query in a healthy database.
const queryTimeout = 30 * time.Second

// Appender appends events to the log, including types reserved for badged. A projector
// implements it.
type Appender interface {
	Append(ctx context.Context, evs ...events.Event) (events.Receipt, error)
}

// Config configures a Sweeper. Pool, Log and Layouts are required.
type Config struct {
	// Pool provides the connection settings. The sweep opens its own connection.
	Pool *pgxpool.Pool
	// Log must be a projector, because an [events.Log] refuses the event types of a sweep.
	Log Appender
	// Layouts maps users to partitions. Usually it is the log.
	Layouts events.Layouts
	// Held returns the partitions that the database holds. Default: all.
	Held func() []int
	// After says how long after the last delivery or mark a conversation expires, by category.
	// Each time must be at least MinExpireAfter. If several keys cover the category of a
	// conversation, the time of the longest key applies. If no key covers it, the time of the key
	// OtherCategories applies; without this key, the conversation never expires. If After is
	// empty, the sweeper only ends levels.
	After map[string]time.Duration
	// Logger defaults to a logger that discards everything.
	Logger *slog.Logger
	// Metrics defaults to metrics that are not registered.
	Metrics *Metrics

	// Interval is the time between two sweeps. Default 5m.
	Interval time.Duration
	// LevelInterval is the time between two searches for levels whose end has passed. Default
	// 10s.
	LevelInterval time.Duration
	// StandbyInterval is how often an instance that does not sweep tries to acquire the lock.
	// Default 5s.
	StandbyInterval time.Duration
	// BatchSize is the maximum number of conversations that one transaction expires; a
	// conversation counts once for each user. Default 1,000, at most events.MaxUsers.
	BatchSize int
	// Pause is the minimum pause between two batches. The next batch also waits until the
	// previous one is folded. Default 100ms.
	Pause time.Duration
}

// Sweeper finds conversations with unread messages but no recent delivery, and appends events
// that mark them as read. It does not change the tables itself: the fold of these events does.
// Any number of sweepers may run on one database, but only the sweeper that has an advisory
// lock sweeps. If its session ends, another sweeper acquires the lock.
type Sweeper struct {
	cfg Config
	log *slog.Logger
	// now returns the time on the database's clock.
	now func(ctx context.Context, q pgsession.Querier) (time.Time, error)
	// foldTimeout bounds the wait until a batch is folded. After a timeout, the sweep skips
	// the rest of the partition, and the next sweep continues there.
	foldTimeout time.Duration
	// pageSize is the maximum number of conversations that a query returns. A page has several
	// batches, so that there are few queries: each sorts all conversations of an hour.
	pageSize int
}

// New returns a sweeper. Run starts it.
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

// Run sweeps while this instance has the lock of the sweep. It returns nil when ctx is done.
func (x *Sweeper) Run(ctx context.Context) error {
	wait.Backoff{First: firstRetry, Last: lastRetry}.Retry(ctx, x.session, func(err error, pause time.Duration) {
		x.cfg.Metrics.failed.Inc()
		x.log.WarnContext(ctx, "the expiry session ended, will try again", "error", err, "in", pause)
	})
	return nil
}

// session acquires the lock of the sweep on one connection, and sweeps until ctx is done or
// the connection fails. All reads of a sweep use this connection. So if the connection fails,
// and Postgres releases the lock, the sweep fails before it appends another batch. The lock
// only saves work: if two sweepers append the same events, the duplicates change nothing.
func (x *Sweeper) session(ctx context.Context) error {
	conn, err := pgsession.OpenSession(ctx, x.cfg.Pool.Config().ConnConfig, "badged expiry")
	if err != nil {
		return err
	}
	defer func() {
		pgsession.CloseSession(ctx, conn)
		x.cfg.Metrics.lastSweep.Set(0)
	}()
	var next time.Time // time of the next sweep
	for held := false; ; {
		pause := x.cfg.StandbyInterval
		if !held {
			if held, err = x.lock(ctx, conn); err != nil {
				return err
			}
			if held {
				x.log.InfoContext(ctx, "this instance runs the expiry sweep")
			}
		}
		if held {
			err := x.work(ctx, conn, &next)
			if differ, ok := errors.AsType[*dbclock.DifferError](err); ok {
				x.log.WarnContext(ctx, "this instance expires nothing until the clocks agree", "error", differ)
				held, err = false, x.unlock(ctx, conn) // another instance's clock may be right
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

// work ends levels, and sweeps if the next sweep is due. Since an expiry cannot be undone,
// work changes nothing while the clocks of this process and the database differ: it fails with
// a [*dbclock.DifferError].
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

// lock tries to acquire the lock of the sweep.
func (x *Sweeper) lock(ctx context.Context, conn *pgx.Conn) (held bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	return query.One[bool](ctx, conn, "acquire the lock of the sweep", `SELECT pg_try_advisory_lock($1, $2)`, lockClass, lockKey)
}

func (x *Sweeper) unlock(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	return query.Exec(ctx, conn, "release the lock of the sweep", `SELECT pg_advisory_unlock($1, $2)`, lockClass, lockKey)
}
