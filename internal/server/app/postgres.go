package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/obs"
	"github.com/badged/badged/internal/pg/pgfault"
	"github.com/badged/badged/internal/pg/pgsession"
	"github.com/badged/badged/internal/pg/pooler"
)

// checkPostgres is the readiness check of Postgres. If the database can be read but not written,
// the process is still ready, since the gateway still serves badges.
func checkPostgres(ctx context.Context, pool *pgxpool.Pool, faults *pgfault.Watch) error {
	var readOnly bool
	err := pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		if err := conn.QueryRow(ctx, `SELECT current_setting('transaction_read_only')::boolean`).Scan(&readOnly); err != nil || !readOnly {
			return err
		}
		return conn.Conn().Close(ctx) // close the session: it would stay read-only even after Postgres becomes writable again
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

// checkFolding is the readiness check of folding. It fails in every process while partitions are
// not folded, even if another process should fold them.
func (a *App) checkFolding(ctx context.Context) error {
	var texts []string
	for _, d := range a.databases {
		if err := d.progress.Check(ctx); err != nil {
			texts = append(texts, d.prefix()+err.Error())
		}
	}
	if len(texts) == 0 {
		return nil
	}
	return errors.New(strings.Join(texts, "; "))
}

// divideConnections sets the sizes of the pools of a database. The sizes depend on the roles of
// this process and on the connection limits of the database and its server. It fails if the limits
// permit fewer connections than this process needs at least: otherwise it could accept events that
// are never folded. If the limits cannot be read, it assumes that there are none. If there is only
// one database, it waits until the database accepts connections, and fails if the connection goes
// through an unsupported pooler. It uses one session.
func (a *App) divideConnections(ctx context.Context, d *database) error {
	d.conns = a.cfg.Connections(d.config)
	alone := d.config.Name == ""
	conn, err := a.firstSession(ctx, d, alone)
	if err == nil {
		defer conn.Close(context.WithoutCancel(ctx))
		if alone {
			_, err = pooler.ModeOf(ctx, conn)
		}
	}
	if err != nil && alone {
		return err
	}
	var limits []pgsession.Limit
	if err == nil {
		looking, cancel := context.WithTimeout(ctx, limitsPatience)
		defer cancel()
		limits, err = pgsession.Limits(looking, conn)
	}
	if err != nil {
		d.log.WarnContext(ctx, "cannot read how many connections to Postgres are permitted", "error", err)
		return nil
	}
	need, least := d.conns.Sum(), d.conns.Least().Sum()
	for _, l := range limits {
		limit := l.Max
		if l.Shared { // the limit applies to all databases on the server together
			limit /= a.cfg.OnServer(d.config)
		}
		switch {
		case limit < least:
			return fmt.Errorf("%s: %s; this process needs %d, and %d at least: raise the limit (%s), or give the process fewer roles", d.config.Label(), l, need, least, l.Setting)
		case limit < d.conns.Sum():
			d.conns = d.conns.Within(limit)
			d.log.WarnContext(ctx, "fewer connections to Postgres are permitted than this process would open; its pools are smaller, and no connection is left for other processes",
				"limit", l.String(), "needs", need, "opens", d.conns.Sum(), "raise", l.Setting)
		case l.Max-l.Used < d.conns.Sum():
			d.log.WarnContext(ctx, "connections to Postgres may run out: other clients have open connections too", "limit", l.String(), "needs", need, "raise", l.Setting)
		}
	}
	return nil
}

// limitsPatience limits the time to read the limits.
const limitsPatience = 5 * time.Second

// faultOfRead returns the fault to report after a failed read.
func faultOfRead(err error) pgfault.Fault {
	f := pgfault.FaultOf(err)
	if f.Reads() || f == pgfault.Slow {
		return pgfault.Unreachable
	}
	return f
}

// The first and the longest pause between two attempts to connect at startup.
const (
	firstAttemptPause = 250 * time.Millisecond
	lastAttemptPause  = 10 * time.Second
)

// firstSession connects to a database. If `waits` is true, it tries again until the database
// accepts connections.
func (a *App) firstSession(ctx context.Context, d *database, waits bool) (conn *pgx.Conn, err error) {
	cfg, err := d.config.PoolConfig()
	if err != nil {
		return nil, err
	}
	cfg.ConnConfig.ConnectTimeout = 5 * time.Second
	connect := func() error {
		if conn, err = pgx.ConnectConfig(ctx, cfg.ConnConfig); err != nil {
			return fmt.Errorf("connect to the %s: %w", d.config.Label(), err)
		}
		return nil
	}
	if !waits {
		err = connect()
		return conn, err
	}
	err = a.untilReached(ctx, d, connect)
	return conn, err
}

// untilReached calls `try` until it succeeds. While the database is unavailable or is starting, for
// example after a reboot of the machine, untilReached repeats the call: a supervisor may stop
// restarting a program that exits repeatedly. It returns any other error at once, such as a wrong
// password, since an operator must correct its cause.
func (a *App) untilReached(ctx context.Context, d *database, try func() error) error {
	for pause := firstAttemptPause; ; pause = min(2*pause, lastAttemptPause) {
		err := try()
		switch pgfault.FaultOf(err) {
		case pgfault.Unreachable, pgfault.Restarting, pgfault.TooManyConnections:
		case pgfault.Slow:
			if !unreachable(err) { // a migration failed to get its locks
				return err
			}
		default:
			return err
		}
		a.log.WarnContext(ctx, "waiting for Postgres", "database", d.config.Label(), "error", err, "next_attempt_in", pause)
		if err := wait.For(ctx, pause); err != nil {
			return fmt.Errorf("wait for Postgres: %w", err)
		}
	}
}
