package copier

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/fold/logread"
	"github.com/badged/badged/internal/pg/pgsession"
	"github.com/badged/badged/internal/pg/query"
)

// Limits of a round, which copies recorded changes. A round copies at most roundChanges changes.
// The gate may be closed after a round of at most fewChanges changes that took less than
// quickRound; see catchUp.
const (
	roundChanges = 50_000
	fewChanges   = 5_000
	quickRound   = 250 * time.Millisecond
)

// catchUp calls `round`, which copies changes and returns their number, until a further round would
// not shorten the switch. This is the case after a round without changes, or after a quick round
// with few changes. On a slow machine or network perhaps no round is quick. So catchUp also ends
// if a round with few changes takes more than three quarters of the time of the round before it.
// If such a round is still too slow, the attempt to switch fails.
func (s *Session) catchUp(round func() (int, error)) error {
	for before := time.Duration(math.MaxInt64); ; {
		began := time.Now()
		changes, err := round()
		took := time.Since(began)
		s.lastRound = took
		switch {
		case err != nil:
			return err
		case changes == 0, changes <= fewChanges && (took < quickRound || took > before/4*3):
			return nil
		}
		before = took
	}
}

// ErrBusy means that every attempt of the switch would have blocked publishers for too long. The
// partition is unchanged.
var ErrBusy = errors.New("the switch would block publishers for too long")

// ErrNotYet means that the current attempt would block publishers for longer than permitted. The
// switch is attempted again.
var ErrNotYet = errors.New("the switch would take too long now")

// notYet reports whether the switch should be tried again after err.
func notYet(err error) bool {
	const canceled = "57014" // by statement_timeout
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return errors.Is(err, ErrNotYet) || pgsession.IsLocked(err) || ok && pg.Code == canceled
}

// Pauses between attempts of the switch. The first pause is firstPause. Each further pause is
// twice as long as the previous pause, but at most lastPause.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = 2 * time.Second
	// mostBehind is the maximum number of unfolded rows with which an attempt may start. The
	// projector usually folds this number of rows in one batch.
	mostBehind = 50
)

// StoppedError wraps an error after which the partition is unchanged.
type StoppedError struct{ Err error }

// Error implements error.
func (e *StoppedError) Error() string { return e.Err.Error() }

// Unwrap returns the error.
func (e *StoppedError) Unwrap() error { return e.Err }

// Switch copies recorded changes, and then attempts to make the new partitions or the target
// database take over. It repeats this until an attempt succeeds, or until c.Attempts attempts took
// too long. It makes no attempt while a long transaction would block closing the gate, or while the
// projector is behind.
//
// If the partition is certainly unchanged, the error is a [*StoppedError]; it wraps [ErrBusy] if
// c.Attempts attempts took too long. If an attempt failed for another reason than time, Switch
// returns the error of the attempt: the switch may have been committed nevertheless.
func (c *Copy) Switch(ctx context.Context) error {
	// The statement is a VACUUM of the table of recorded changes: its dead rows would slow down
	// reading the changes while publishers are blocked.
	if _, err := c.Conn.Exec(ctx, statements.Get("forget copied changes")); err != nil {
		return &StoppedError{c.wrap(err)}
	}
	c.gate = c.blocking(nil)
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		if err := c.CatchUp(ctx); err != nil {
			return &StoppedError{err}
		}
		open, err := c.delayed(ctx)
		if err != nil {
			return &StoppedError{c.wrap(err)}
		}
		if !open {
			if err = c.attempt(ctx); err == nil || !notYet(err) {
				return err
			}
			c.due = time.Time{}
			if c.Result.Attempts == c.Attempts {
				return &StoppedError{c.wrap(fmt.Errorf("%w: %d attempts of up to %s failed, the last with: %w; %s", ErrBusy, c.Attempts, c.Patience, err, c.remedy(ctx, err)))}
			}
		}
		if wait.For(ctx, pause) != nil {
			return &StoppedError{ctx.Err()}
		}
	}
}

// attempt closes the gates and makes the switch, in one transaction of the source. If it takes too
// long, it fails with an error for which notYet is true.
func (c *Copy) attempt(ctx context.Context) error {
	c.Progress(Switching, c.Result.Rows)
	c.Result.Attempts++
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second) // in case a database hangs
	defer cancel()
	forget := c.Mark()
	var closed time.Time
	err := c.InTransaction(ctx, func(tx pgx.Tx) (err error) {
		var cursor logread.Cursor
		if closed, cursor, err = c.closeGates(ctx, tx, c.Patience); err != nil {
			return err
		}
		return c.Attempt(ctx, tx, cursor)
	})
	if err != nil {
		forget()
		return err
	}
	c.Closed = closed
	return nil
}

const lessOrLonger = "try again when fewer events are published, or permit a longer pause with --max-pause"

// remedy returns advice on how to make the switch succeed, after it failed with err.
func (s *Session) remedy(ctx context.Context, err error) string {
	if !pgsession.IsLocked(err) {
		return lessOrLonger
	}
	holder, ok, err := pgsession.FindHolder(ctx, s.Conn, statements.Get("locks the tables"))
	if err != nil || !ok {
		return lessOrLonger
	}
	return fmt.Sprintf("%s, %s, has locks; %s", holder, holder.Open(), holder.Remedy())
}

// delayed reports whether the next attempt must be delayed, because a long transaction would block
// closing the gate, or because the projector is behind. It reports a transaction to Blocked, and
// a projector that is behind to Progress.
func (c *Copy) delayed(ctx context.Context) (bool, error) {
	before := c.checked
	if err := c.Conn.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&c.checked); err != nil {
		return false, err
	}
	holder, ok, err := pgsession.FindHolder(ctx, c.Conn, statements.Get("keeps the gate open"), c.Partition)
	if err != nil {
		return false, err
	}
	// A transaction counts as long if it was already open at the previous check. At the first
	// check, every open transaction counts as long. If this role may not see when the transaction
	// began, do not delay the attempt: the attempt itself shows whether the transaction blocks.
	if ok && !holder.Since.IsZero() && (before.IsZero() || holder.Since.Before(before)) {
		_, err := c.gate.HeldBy(holder)
		return true, err
	}
	c.gate = c.blocking(nil)
	cursor, err := logread.Load(ctx, c.Conn, c.Partition, "")
	if err != nil {
		return false, err
	}
	behind, err := c.backlog(ctx, cursor)
	if behind > mostBehind {
		c.Progress(Waiting, behind)
	}
	return behind > mostBehind, err
}

// backlog returns the number of rows that a projector with this cursor has not folded. It counts at
// most 10,000 rows after the cursor, and all rows of pending transactions.
func (s *Session) backlog(ctx context.Context, cursor logread.Cursor) (int64, error) {
	return query.One[int64](ctx, s.Conn, "count the events to fold", statements.Of(s.Partition, "rows to fold"), cursor.Args()...)
}

// endHangingSQL makes Postgres end the session if its transaction is idle for 5 s. The transaction
// blocks publishers. It is idle for so long only if this process hangs or its host has failed.
const endHangingSQL = `SET LOCAL idle_in_transaction_session_timeout = '5s'`

// Overdue returns [ErrNotYet] if the running attempt has blocked publishers for longer than
// permitted, and nil if no attempt runs.
func (s *Session) Overdue() error {
	if !s.due.IsZero() && time.Now().After(s.due) {
		return ErrNotYet
	}
	return nil
}

// closeGates closes the gate for publishers, waits until all events in the log are folded, and
// closes the gate for all other writers. It returns the time from which publishers are blocked,
// and the projector's cursor.
//
// closeGates fails if open transactions that have appended do not end within half of patience, or
// if folding is not complete after three quarters of patience. It sets patience as the timeout of
// each later statement of tx. It fails immediately if the last round took longer than patience,
// since the copy with closed gates would probably take as long.
func (s *Session) closeGates(ctx context.Context, tx pgx.Tx, patience time.Duration) (closed time.Time, cursor logread.Cursor, err error) {
	if s.lastRound > patience {
		return closed, cursor, ErrNotYet
	}
	if _, err := tx.Exec(ctx, fmt.Sprintf(`SET LOCAL lock_timeout = %d; `, max(1, (patience/2).Milliseconds()))+endHangingSQL); err != nil {
		return closed, cursor, err
	}
	closed = time.Now() // publishers queue behind the lock request
	s.due = closed.Add(patience)
	if _, err := tx.Exec(ctx, statements.Get("close the gate for publishers"), s.Partition); err != nil {
		return closed, cursor, err
	}
	if _, err := tx.Exec(ctx, fmt.Sprintf(`SET LOCAL statement_timeout = %d; SET LOCAL lock_timeout = %d`, patience.Milliseconds(), max(1, (patience/4).Milliseconds()))); err != nil {
		return closed, cursor, err
	}
	if cursor, err = s.awaitFolded(ctx, closed.Add(patience/4*3)); err != nil {
		return closed, cursor, err
	}
	_, err = tx.Exec(ctx, statements.Get("close the gate for writers"), s.Partition)
	return closed, cursor, err
}

// awaitFolded blocks until all events in the log are folded, and locks the projector's position in
// the current transaction. The caller must have blocked appends. After the deadline, awaitFolded
// fails with an error that wraps ErrNotYet.
func (s *Session) awaitFolded(ctx context.Context, deadline time.Time) (logread.Cursor, error) {
	lock := ""
	for {
		cursor, err := logread.Load(ctx, s.Conn, s.Partition, lock)
		if err != nil {
			return cursor, err
		}
		behind, err := s.backlog(ctx, cursor)
		switch {
		case err != nil:
			return cursor, err
		case behind == 0 && lock != "":
			return cursor, nil
		case behind == 0:
			lock = "FOR UPDATE"
			continue
		case time.Now().After(deadline):
			return cursor, fmt.Errorf("%w: rows of the log that are not folded: %d (is a projector running?)", ErrNotYet, behind)
		}
		if wait.For(ctx, 2*time.Millisecond) != nil {
			return cursor, ctx.Err()
		}
	}
}
