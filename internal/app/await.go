package app

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/pgfault"
)

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
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("wait for Postgres: %w", context.Cause(ctx))
		}
	}
}
