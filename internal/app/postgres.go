package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/internal/config"
	"github.com/badged/badged/internal/obs"
	"github.com/badged/badged/internal/pgfault"
	"github.com/badged/badged/internal/pgsession"
	"github.com/badged/badged/internal/wait"
)

// checkPostgres is the readiness check of Postgres. A database that can be read
// but not written is only an impairment: the gateway still serves badges.
func checkPostgres(ctx context.Context, pool *pgxpool.Pool, faults *pgfault.Watch) error {
	var readOnly bool
	err := pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		if err := conn.QueryRow(ctx, `SELECT current_setting('transaction_read_only')::boolean`).Scan(&readOnly); err != nil || !readOnly {
			return err
		}
		return conn.Conn().Close(ctx) // it would stay read-only when Postgres is not
	})
	if err != nil {
		text := faultOfRead(err).String()
		if ago, ok := faults.LastFull(); ok {
			text += fmt.Sprintf("; its disk was full %s ago", ago.Round(time.Second))
		}
		return errors.New(text)
	}
	f := faults.Present()
	if readOnly {
		f = pgfault.ReadOnly
	}
	if f == pgfault.None {
		return nil
	}
	return obs.Impaired(f.String() + ": events cannot be stored, badges can be read")
}

// checkFolding is the readiness check of what turns events into badges, in any process.
func (a *App) checkFolding(ctx context.Context) error {
	var texts []string
	for _, d := range a.databases {
		if err := d.progress.Check(ctx); err != nil && d.config.Name != "" {
			texts = append(texts, fmt.Sprintf("shard %s: %v", d.config.Name, err))
		} else if err != nil {
			texts = append(texts, err.Error())
		}
	}
	if len(texts) == 0 {
		return nil
	}
	return errors.New(strings.Join(texts, "; "))
}

// divideConnections sets the sizes of the pools of a database by what its role, the database
// and the server permit. It fails if that is too little to fold: events would be accepted,
// and badges never change. What cannot be reached is taken to permit enough.
func (a *App) divideConnections(ctx context.Context, d *database) error {
	d.conns = a.cfg.Connections(d.config)
	limits, err := limitsOf(ctx, d.config)
	if err != nil {
		d.log.WarnContext(ctx, "cannot read how many connections to Postgres are permitted", "error", err)
		return nil
	}
	need, least := d.conns.Sum(), d.conns.Least().Sum()
	for _, l := range limits {
		most := l.Most
		if l.Shared { // by shards of one server
			most /= a.cfg.OnServer(d.config)
		}
		switch {
		case most < least:
			return fmt.Errorf("%s: %s; this process needs %d, and %d at least: raise it (%s), or give the process fewer roles", d.config.Label(), l, need, least, l.Setting)
		case most < d.conns.Sum():
			d.conns = d.conns.Within(most)
			d.log.WarnContext(ctx, "fewer connections to Postgres are permitted than this process would open; its pools are smaller, and nothing is left for other processes",
				"limit", l.String(), "needs", need, "opens", d.conns.Sum(), "raise", l.Setting)
		case l.Most-l.Used < d.conns.Sum():
			d.log.WarnContext(ctx, "connections to Postgres may run out: others are open besides those that this process opens", "limit", l.String(), "needs", need, "raise", l.Setting)
		}
	}
	return nil
}

// limitsPatience bounds the look at what is permitted.
const limitsPatience = 5 * time.Second

// limitsOf reads what limits the connections to a database.
func limitsOf(ctx context.Context, s config.Shard) ([]pgsession.Limit, error) {
	cfg, err := s.PoolConfig()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, limitsPatience)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, cfg.ConnConfig)
	if err != nil {
		return nil, fmt.Errorf("connect to the %s: %w", s.Label(), err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return pgsession.Limits(ctx, conn)
}

// faultOfRead returns the fault behind a read that failed.
func faultOfRead(err error) pgfault.Fault {
	f := pgfault.Of(err)
	if f.Reads() || f == pgfault.Slow {
		return pgfault.Unreachable
	}
	return f
}

// The first and the longest pause between two attempts to connect at the start.
const (
	firstAttemptPause = 250 * time.Millisecond
	lastAttemptPause  = 10 * time.Second
)

// awaitDatabase waits while the database cannot be reached or is starting, as after a
// boot of the machine: a supervisor would give up a program that ends again and again.
// It returns at once if an operator must change something, such as a password.
func (a *App) awaitDatabase(ctx context.Context, d *database) error {
	cfg, err := d.config.PoolConfig()
	if err != nil {
		return err
	}
	cfg.ConnConfig.ConnectTimeout = 5 * time.Second
	for pause := firstAttemptPause; ; pause = min(2*pause, lastAttemptPause) {
		conn, err := pgx.ConnectConfig(ctx, cfg.ConnConfig)
		if err == nil {
			return conn.Close(ctx)
		}
		switch pgfault.Of(err) {
		case pgfault.Unreachable, pgfault.Restarting, pgfault.Slow, pgfault.TooManyConnections:
		default:
			return nil // what follows finds it too, and says more
		}
		a.log.WarnContext(ctx, "waiting for Postgres", "database", d.config.Label(), "error", err, "next_attempt_in", pause)
		if err := wait.For(ctx, pause); err != nil {
			return fmt.Errorf("wait for Postgres: %w", err)
		}
	}
}
