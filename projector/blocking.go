package projector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// setSwapPatienceSQL says how long others may have to wait behind whoever swaps or
// drops tables, and waits for those who read them.
const setSwapPatienceSQL = `SET LOCAL lock_timeout = '100ms'`

// SQLSTATEs of a lock that cannot be had.
const (
	lockNotAvailable = "55P03"
	deadlockDetected = "40P01"
)

// blocking waits for those who read tables that are to be locked.
type blocking struct {
	conn *pgx.Conn
	// tell is called with who is in the way.
	tell      func(partition, pid int, application string)
	partition int
	// tables are their names, of whole tables those of all parts.
	tables []string
	pause  time.Duration
	told   time.Time
}

// Between attempts to lock tables. Each may keep others waiting for the patience
// of setSwapPatienceSQL, so behind a dump of hours they are far between.
const (
	firstLockPause = 50 * time.Millisecond
	lastLockPause  = 30 * time.Second
	// blockedInterval is how often it is told who is in the way.
	blockedInterval = 5 * time.Second
)

// wait returns when it is time for another attempt: twice as long after the last
// as that was after the one before.
func (b *blocking) wait(ctx context.Context) error {
	if time.Since(b.told) > blockedInterval {
		var pid int
		var application string
		err := b.conn.QueryRow(ctx, `SELECT a.pid, a.application_name
FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
WHERE l.granted AND l.pid <> pg_backend_pid() AND l.relation = ANY ($1::text[]::regclass[])
ORDER BY a.xact_start
LIMIT 1`, b.tables).Scan(&pid, &application)
		if err == nil {
			b.told = time.Now()
			b.tell(b.partition, pid, application)
		} else if !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("find out who reads the tables: %w", err)
		}
	}
	b.pause = nextLockPause(b.pause)
	timer := time.NewTimer(b.pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// nextLockPause returns the pause that follows one, 0 for none.
func nextLockPause(last time.Duration) time.Duration {
	return min(max(2*last, firstLockPause), lastLockPause)
}

// isLocked reports whether an error is that of a lock that cannot be had.
func isLocked(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && (pgErr.Code == lockNotAvailable || pgErr.Code == deadlockDetected)
}
