package follow

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/badged/badged/internal/pgsession"
	"github.com/badged/badged/internal/wait"
	"github.com/badged/badged/projector/internal/logread"
)

// Limits of a round: more than this in one is not done with the gate closed.
const (
	RoundChanges = 50_000
	fewChanges   = 5_000
	quickRound   = 250 * time.Millisecond
)

// CatchUp calls round, which copies what has changed and returns how much, until it is
// quick. On a slow machine, or if the target is far away, no round is. Then it ends once
// rounds with few changes do not become quicker, and an attempt to switch finds out whether
// that is good enough.
func (s *Session) CatchUp(round func() (int, error)) error {
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

// ErrBusy means that the switch failed as often as it may, and nothing has happened.
var ErrBusy = errors.New("the switch would hold up publishers for too long")

// ErrNotYet means that the switch was not possible in the time that others may wait.
var ErrNotYet = errors.New("the switch would take too long now")

// notYet reports whether the switch is to be tried again.
func notYet(err error) bool {
	const canceled = "57014" // by statement_timeout
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return errors.Is(err, ErrNotYet) || pgsession.IsLocked(err) || ok && pg.Code == canceled
}

// Pauses between attempts to switch. Publishers may wait during each.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = 2 * time.Second
	// mostBehind is how many rows of the log the projector folds in an instant.
	mostBehind = 50
)

// StoppedError wraps an error before anything has happened.
type StoppedError struct{ Err error }

// Error implements error.
func (e *StoppedError) Error() string { return e.Err.Error() }

// Unwrap returns the error.
func (e *StoppedError) Unwrap() error { return e.Err }

// Switch catches up, and tries until attempt succeeds, or has failed too often: then the
// error wraps [ErrBusy]. It does not try while a transaction that stays open keeps the gate
// open, or much is not folded, which waiting is told. A [*StoppedError] comes from outside
// of an attempt.
func (s *Session) Switch(ctx context.Context, catchUp func() error, attempt func() error, waiting func(behind int64)) error {
	// Reading what has changed while publishers wait takes longer behind many old rows.
	if _, err := s.Conn.Exec(ctx, statements.Get("forget copied changes")); err != nil {
		return &StoppedError{s.wrap(err)}
	}
	s.gate = s.blocking(nil)
	failed, most := 0, s.Attempts
	if most <= 0 {
		most = 10
	}
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		if err := catchUp(); err != nil {
			return &StoppedError{err}
		}
		open, err := s.waits(ctx, waiting)
		if err != nil {
			return &StoppedError{s.wrap(err)}
		}
		if !open {
			if err = attempt(); err == nil || !notYet(err) {
				return err
			}
			s.due = time.Time{}
			if failed++; failed == most {
				return &StoppedError{s.wrap(fmt.Errorf("%w: %d attempts of up to %s failed, the last with: %w; %s", ErrBusy, failed, s.patience, err, s.remedy(ctx, err)))}
			}
		}
		if wait.For(ctx, pause) != nil {
			return &StoppedError{ctx.Err()}
		}
	}
}

const lessOrLonger = "less may be published at another time, or permit a longer pause with --max-pause"

// remedy says what may make a switch succeed that has failed with err.
func (s *Session) remedy(ctx context.Context, err error) string {
	if !pgsession.IsLocked(err) {
		return lessOrLonger
	}
	by, ok, err := pgsession.FindHolder(ctx, s.Conn, statements.Get("locks the tables"))
	if err != nil || !ok {
		return lessOrLonger
	}
	return fmt.Sprintf("%s, %s, has locks; %s", by, by.Open(), by.Remedy())
}

// waits reports whether a transaction that stays open keeps the gate open, or something is
// not folded, and tells of it.
func (s *Session) waits(ctx context.Context, waiting func(behind int64)) (bool, error) {
	before := s.looked
	if err := s.Conn.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&s.looked); err != nil {
		return false, err
	}
	by, ok, err := pgsession.FindHolder(ctx, s.Conn, statements.Get("keeps the gate open"), s.Partition)
	if err != nil {
		return false, err
	}
	// If it began after the look before, the transactions that were open then have ended. Of
	// one whose beginning the role may not see, an attempt finds out.
	if ok && !by.Since.IsZero() && (before.IsZero() || by.Since.Before(before)) {
		_, err := s.gate.HeldBy(by)
		return true, err
	}
	s.gate = s.blocking(nil)
	at, err := logread.Load(ctx, s.Conn, s.Partition, "")
	if err != nil {
		return false, err
	}
	behind, err := s.behind(ctx, at)
	if err != nil {
		return false, err
	}
	if behind > mostBehind {
		waiting(behind)
		return true, nil
	}
	return false, nil
}

// behind returns how many rows are not folded at a cursor, up to a few.
func (s *Session) behind(ctx context.Context, at logread.Cursor) (behind int64, err error) {
	pending := at.Pending
	if pending == nil {
		pending = []int64{}
	}
	if err := s.Conn.QueryRow(ctx, statements.Of(s.Partition, "rows to fold"), at.TransactionID, at.Offset, pending).Scan(&behind); err != nil {
		return 0, fmt.Errorf("look for what is not folded: %w", err)
	}
	return behind, nil
}

// endHangingSQL ends a session that hangs while publishers wait for it, or whose host is
// gone.
const endHangingSQL = `SET LOCAL idle_in_transaction_session_timeout = '5s'`

// Overdue returns [ErrNotYet] if publishers have waited for as long as they may in the
// attempt that runs, if one does.
func (s *Session) Overdue() error {
	if !s.due.IsZero() && time.Now().After(s.due) {
		return ErrNotYet
	}
	return nil
}

// CloseGates closes the gate for publishers, waits until everything in the log is folded,
// and closes the gate for all other writers. Statements of the transaction may take as long
// as patience says. Transactions that have appended get half of it to end, and folding ends
// at three quarters of it. It returns since when publishers wait. If the last round of
// catching up took longer than patience, it fails at once: so would the last copy.
func (s *Session) CloseGates(ctx context.Context, tx pgx.Tx, patience time.Duration) (closed time.Time, at logread.Cursor, err error) {
	s.patience = patience
	if s.lastRound > patience {
		return closed, at, ErrNotYet
	}
	for _, sql := range []string{fmt.Sprintf(`SET LOCAL lock_timeout = %d`, max(1, (patience/2).Milliseconds())), endHangingSQL} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return closed, at, err
		}
	}
	closed = time.Now() // others wait behind the request
	s.due = closed.Add(patience)
	if _, err := tx.Exec(ctx, statements.Get("close the gate for publishers"), s.Partition); err != nil {
		return closed, at, err
	}
	if _, err := tx.Exec(ctx, fmt.Sprintf(`SET LOCAL statement_timeout = %d; SET LOCAL lock_timeout = %d`, patience.Milliseconds(), max(1, (patience/4).Milliseconds()))); err != nil {
		return closed, at, err
	}
	if at, err = s.awaitFolded(ctx, closed.Add(patience/4*3)); err != nil {
		return closed, at, err
	}
	_, err = tx.Exec(ctx, statements.Get("close the gate for writers"), s.Partition)
	return closed, at, err
}

// awaitFolded waits until everything in the log is folded, while nothing is appended, and
// locks the position.
func (s *Session) awaitFolded(ctx context.Context, deadline time.Time) (logread.Cursor, error) {
	lock := ""
	for {
		at, err := logread.Load(ctx, s.Conn, s.Partition, lock)
		if err != nil {
			return at, err
		}
		behind, err := s.behind(ctx, at)
		switch {
		case err != nil:
			return at, err
		case behind == 0 && lock != "":
			return at, nil
		case behind == 0:
			lock = "FOR UPDATE"
			continue
		case time.Now().After(deadline):
			return at, ErrNotYet
		}
		if wait.For(ctx, 2*time.Millisecond) != nil {
			return at, ctx.Err()
		}
	}
}
