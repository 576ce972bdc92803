package pgsession

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// SetSwapPatienceSQL limits how long a session that swaps or drops tables
// waits for their readers, since others wait behind it.
const SetSwapPatienceSQL = `SET LOCAL lock_timeout = '100ms'`

// SQLSTATEs of an unavailable lock.
const (
	LockNotAvailable = "55P03"
	deadlockDetected = "40P01"
)

// Blocking waits for the sessions that read tables to be locked.
type Blocking struct {
	Conn *pgx.Conn
	// Tell is called with the session that blocks.
	Tell      func(partition, pid int, application string)
	Partition int
	// Tables are their names; for a partitioned table, its parts too.
	Tables []string
	pause  time.Duration
	told   time.Time
}

// Pauses between attempts to lock tables. Each attempt may make others wait as
// long as SetSwapPatienceSQL says, so during a long dump attempts become rare.
const (
	FirstLockPause = 50 * time.Millisecond
	lastLockPause  = 30 * time.Second
	// blockedInterval is how often Tell is called.
	blockedInterval = 5 * time.Second
)

// Wait pauses until the next attempt, twice as long each time.
func (b *Blocking) Wait(ctx context.Context) error {
	if time.Since(b.told) > blockedInterval {
		var pid int
		var application string
		err := b.Conn.QueryRow(ctx, `SELECT a.pid, a.application_name
FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
WHERE l.granted AND l.pid <> pg_backend_pid() AND l.relation = ANY ($1::text[]::regclass[])
ORDER BY a.xact_start
LIMIT 1`, b.Tables).Scan(&pid, &application)
		if err == nil {
			b.told = time.Now()
			b.Tell(b.Partition, pid, application)
		} else if !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("find the session that reads the tables: %w", err)
		}
	}
	b.pause = NextLockPause(b.pause)
	timer := time.NewTimer(b.pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// NextLockPause returns the pause after one of length last; 0 means none yet.
func NextLockPause(last time.Duration) time.Duration {
	return min(max(2*last, FirstLockPause), lastLockPause)
}

// IsLocked reports whether an error means that a lock is not available.
func IsLocked(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pgErr.Code == LockNotAvailable || pgErr.Code == deadlockDetected)
}
