package pgsession

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/badged/badged/internal/base/wait"
)

// SetSwapPatienceSQL limits how long a session that swaps or drops tables waits for a lock. The
// limit is short because later readers of the tables queue behind the waiting lock request.
const SetSwapPatienceSQL = `SET LOCAL lock_timeout = '100ms'`

// These are the SQLSTATEs of statements that did not get a lock.
const (
	LockNotAvailable = "55P03"
	deadlockDetected = "40P01"
)

// Blocking is for a command that has to lock tables on which other transactions hold locks. It
// waits for these transactions.
type Blocking struct {
	Conn *pgx.Conn
	// Report is called with the transaction for which the command waits, at most every 5 s
	// (blockedInterval).
	Report    func(partition int, holder Holder)
	Partition int
	// Tables are the names of the tables to lock. For a partitioned table, list its parts too.
	Tables []string
	// MaxWait limits the total wait: after this time, Wait returns a [*HeldError]. Default
	// [DefaultMaxWait].
	MaxWait time.Duration

	pause             time.Duration
	began, reportedAt time.Time
}

const (
	// DefaultMaxWait is the default of Blocking.MaxWait. Most dumps, which lock the tables they
	// read, take less time.
	DefaultMaxWait = 6 * time.Hour
	// maxPreparedWait limits the wait for a prepared transaction. A transaction manager ends its
	// prepared transactions within seconds, unless it has lost track of them.
	maxPreparedWait = 10 * time.Minute
)

// HeldError means that a transaction still holds locks on the tables after the maximum wait of the
// command.
type HeldError struct {
	Holder Holder
	Waited time.Duration
}

// Error implements error.
func (e *HeldError) Error() string {
	return fmt.Sprintf("waited %s for %s, %s, which holds the tables; %s; then run the command again", e.Waited.Round(time.Second), e.Holder, e.Holder.Open(), e.Holder.Remedy())
}

// FirstLockPause and lastLockPause are the shortest and the longest pause between attempts to
// lock tables. The pauses grow, because each attempt may block other sessions for as long as
// SetSwapPatienceSQL permits.
const (
	FirstLockPause = 50 * time.Millisecond
	lastLockPause  = 30 * time.Second
	// blockedInterval is the shortest time between two calls of Report.
	blockedInterval = 5 * time.Second
)

// Wait pauses until the next attempt to lock the tables. Each pause is twice as long as the one
// before, up to lastLockPause. Wait returns a [*HeldError] if a transaction still holds locks on
// the tables after the maximum wait: b.MaxWait, but at most maxPreparedWait for a prepared
// transaction.
func (b *Blocking) Wait(ctx context.Context) error {
	holder, ok, err := FindHolder(ctx, b.Conn, `l.relation = ANY ($1::text[]::regclass[])`, b.Tables)
	if err != nil {
		return err
	}
	left := cmp.Or(b.MaxWait, DefaultMaxWait)
	if ok {
		if left, err = b.HeldBy(holder); err != nil {
			return err
		}
	}
	b.pause = min(NextLockPause(b.pause), max(FirstLockPause, left))
	return wait.For(ctx, b.pause)
}

// Retry runs f in a transaction of db, which is Conn or a transaction of Conn. If f fails because
// of a deadlock, or because it waits for a lock longer than SetSwapPatienceSQL permits, Retry
// rolls back, calls Wait and runs f again.
func (b *Blocking) Retry(ctx context.Context, db beginner, f func(tx pgx.Tx) error) error {
	for {
		err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, SetSwapPatienceSQL); err != nil {
				return err
			}
			return f(tx)
		})
		if !IsLocked(err) {
			return err
		}
		if err := b.Wait(ctx); err != nil {
			return err
		}
	}
}

type beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// HeldBy reports a blocking transaction with Report and returns for how much longer to wait for it.
// The wait is measured from the first call of HeldBy. After the maximum wait, HeldBy returns a
// [*HeldError].
func (b *Blocking) HeldBy(holder Holder) (left time.Duration, err error) {
	if b.began.IsZero() {
		b.began = time.Now()
	}
	left = cmp.Or(b.MaxWait, DefaultMaxWait)
	if holder.Prepared != "" {
		left = min(left, maxPreparedWait)
	}
	waited := time.Since(b.began)
	if left -= waited; left < 0 {
		return 0, &HeldError{holder, waited}
	}
	if time.Since(b.reportedAt) > blockedInterval {
		b.reportedAt = time.Now()
		b.Report(b.Partition, holder)
	}
	return left, nil
}

// NextLockPause returns the pause that follows a pause of length last. If last is 0, it returns
// FirstLockPause.
func NextLockPause(last time.Duration) time.Duration {
	return min(max(2*last, FirstLockPause), lastLockPause)
}

// IsLocked reports whether a statement failed because a lock was not available or because of a
// deadlock.
func IsLocked(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pgErr.Code == LockNotAvailable || pgErr.Code == deadlockDetected)
}
