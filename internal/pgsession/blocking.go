package pgsession

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/badged/badged/internal/wait"
)

// SetSwapPatienceSQL limits how long a session that swaps or drops tables
// waits for their readers, since others wait behind it.
const SetSwapPatienceSQL = `SET LOCAL lock_timeout = '100ms'`

// SQLSTATEs of an unavailable lock.
const (
	LockNotAvailable = "55P03"
	deadlockDetected = "40P01"
)

// Blocking waits for the transactions that hold tables to be locked.
type Blocking struct {
	Conn *pgx.Conn
	// Tell is called with the transaction that blocks.
	Tell      func(partition int, by Holder)
	Partition int
	// Tables are their names; for a partitioned table, its parts too.
	Tables []string
	// Most is how long to wait; see [HeldError]. Default [MostBlocked].
	Most time.Duration

	pause       time.Duration
	began, told time.Time
}

const (
	// MostBlocked is for how long a command waits for a session by default: longer than
	// most dumps take.
	MostBlocked = 6 * time.Hour
	// mostPrepared is for how long it waits at most for a prepared transaction: its
	// transaction manager ends one in seconds, or has forgotten it.
	mostPrepared = 10 * time.Minute
)

// HeldError means that a transaction has held what a command needs for longer than that
// waits.
type HeldError struct {
	By     Holder
	Waited time.Duration
}

// Error implements error.
func (e *HeldError) Error() string {
	return fmt.Sprintf("waited %s for %s, %s, which holds the tables; %s; then run the command again", e.Waited.Round(time.Second), e.By, e.By.Open(), e.By.Remedy())
}

// Pauses between attempts to lock tables. Each attempt may make others wait as
// long as SetSwapPatienceSQL says, so during a long dump attempts become rare.
const (
	FirstLockPause = 50 * time.Millisecond
	lastLockPause  = 30 * time.Second
	// blockedInterval is how often Tell is called.
	blockedInterval = 5 * time.Second
)

// Wait pauses until the next attempt, twice as long each time. It returns a [*HeldError]
// once a transaction has held the tables for too long.
func (b *Blocking) Wait(ctx context.Context) error {
	by, ok, err := FindHolder(ctx, b.Conn, `l.relation = ANY ($1::text[]::regclass[])`, b.Tables)
	if err != nil {
		return err
	}
	left := cmp.Or(b.Most, MostBlocked)
	if ok {
		if left, err = b.HeldBy(by); err != nil {
			return err
		}
	}
	b.pause = min(NextLockPause(b.pause), max(FirstLockPause, left))
	return wait.For(ctx, b.pause)
}

// HeldBy tells of a transaction that blocks, and returns how long to wait for it yet, since
// the first call, or a [*HeldError].
func (b *Blocking) HeldBy(by Holder) (left time.Duration, err error) {
	if b.began.IsZero() {
		b.began = time.Now()
	}
	left = cmp.Or(b.Most, MostBlocked)
	if by.Prepared != "" {
		left = min(left, mostPrepared)
	}
	waited := time.Since(b.began)
	if left -= waited; left < 0 {
		return 0, &HeldError{by, waited}
	}
	if time.Since(b.told) > blockedInterval {
		b.told = time.Now()
		b.Tell(b.Partition, by)
	}
	return left, nil
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
