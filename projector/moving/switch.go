package moving

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/pgsession"
	"github.com/badged/badged/projector/internal/logread"
)

// Pauses between attempts to switch. Publishers may wait during each.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = 2 * time.Second
	// young is how long a transaction may be open until the mover does not even try.
	young = 100 * time.Millisecond
	// tellInterval is how often a session that delays the move is told of.
	tellInterval = 5 * time.Second
)

// endHangingMoverSQL ends the session of a mover that hangs while publishers wait for it, or
// whose host is gone: the source says nothing for as long as the target copies.
const endHangingMoverSQL = `SET LOCAL idle_in_transaction_session_timeout = '5s'`

// errNotYet means that the switch was not possible in the time that others may wait.
var errNotYet = errors.New("the switch would take too long now")

// notYet reports whether the switch is to be tried again.
func notYet(err error) bool {
	const canceled = "57014" // by statement_timeout
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return errors.Is(err, errNotYet) || pgsession.IsLocked(err) || ok && pg.Code == canceled
}

// change makes the target have the partition, as far as the source is concerned.
func (m *mover) change(ctx context.Context) error {
	var told time.Time
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		if err := m.catchUp(ctx); err != nil {
			return m.stays(err)
		}
		open, err := m.waits(ctx, &told)
		if err != nil {
			return m.stays(err)
		}
		if !open {
			m.result.Attempts++
			began := time.Now()
			err = m.attempt(ctx)
			switch {
			case err == nil:
				m.result.Paused = time.Since(began)
				return nil
			case !notYet(err):
				return m.uncertain(ctx, err)
			}
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return m.stays(ctx.Err())
		case <-timer.C:
		}
	}
}

// stays wraps an error before anything has happened.
func (m *mover) stays(err error) error {
	return fmt.Errorf("move partition %d to %s: %w; %s still has it, and nothing is lost: run the command again to go on", m.p, m.target.Name, err, m.source.Name)
}

// uncertain wraps an error of the switch. If the source cannot say, its commit may have
// succeeded.
func (m *mover) uncertain(ctx context.Context, err error) error {
	check, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	now := side{Shard: m.source.Shard}
	switch lookErr := now.look(check, m.source.Pool, m.p); {
	case lookErr != nil:
		return fmt.Errorf("the switch of partition %d to %s failed: %w; whether %s still has it is not known: run the command again when %[4]s can be reached", m.p, m.target.Name, err, m.source.Name)
	case now.holds:
		return m.stays(err)
	}
	return fmt.Errorf("partition %d has left %s, and %s has all of it but does not know so: run the command again: %w", m.p, m.source.Name, m.target.Name, err)
}

// waits reports whether a transaction that has been open for a while keeps the gate open,
// or something is not folded, and tells of it.
func (m *mover) waits(ctx context.Context, told *time.Time) (bool, error) {
	var pid int
	var application string
	err := m.source.conn.QueryRow(ctx, statements.Get("who keeps the gate open"), m.p, young.Seconds()).Scan(&pid, &application)
	switch {
	case err == nil:
		if time.Since(*told) > tellInterval {
			*told = time.Now()
			m.cfg.Blocked(m.source.Name, pid, application)
		}
		return true, nil
	case !errors.Is(err, pgx.ErrNoRows):
		return false, fmt.Errorf("on %s: %w", m.source.Name, err)
	}
	var behind int64
	at, err := logread.Load(ctx, m.source.conn, m.p, "")
	if err == nil {
		err = m.source.conn.QueryRow(ctx, statements.Of(m.p, "rows to fold"), at.TransactionID, at.Offset, pendingOf(at)).Scan(&behind)
	}
	if err != nil {
		return false, fmt.Errorf("on %s: %w", m.source.Name, err)
	}
	if behind > mostBehind {
		m.cfg.Progress(Waiting, behind)
		return true, nil
	}
	return false, nil
}

// mostBehind is how many rows of the log the source's projector folds in an instant.
const mostBehind = 50

func pendingOf(at logread.Cursor) []int64 {
	if at.Pending == nil {
		return []int64{}
	}
	return at.Pending
}

// attempt closes the gates and, if all is folded soon, copies the rest and releases the
// partition.
func (m *mover) attempt(ctx context.Context) error {
	m.cfg.Progress(Switching, m.result.Rows)
	before := m.target.move
	attempt, cancel := context.WithTimeout(ctx, 20*time.Second) // a shard that hangs
	defer cancel()
	epoch, limit := "", fmt.Sprintf(`SET LOCAL statement_timeout = %d`, m.cfg.Patience.Milliseconds())
	err := m.source.in(attempt, func(source pgx.Tx) error {
		if _, err := source.Exec(attempt, pgsession.SetSwapPatienceSQL); err != nil {
			return err
		}
		if _, err := source.Exec(attempt, endHangingMoverSQL); err != nil {
			return err
		}
		if _, err := source.Exec(attempt, statements.Get("close the gate for publishers"), m.p); err != nil {
			return err
		}
		if _, err := source.Exec(attempt, limit); err != nil {
			return err
		}
		closed := time.Now()
		at, err := m.awaitFolded(attempt, source, closed.Add(m.cfg.Patience/2))
		if err != nil {
			return err
		}
		if _, err := source.Exec(attempt, statements.Get("close the gate for writers"), m.p); err != nil {
			return err
		}
		if err := source.QueryRow(attempt, statements.Get("epoch"), m.p).Scan(&epoch); err != nil {
			return fmt.Errorf("read the epoch: %w", err)
		}
		if err := m.target.in(attempt, func(target pgx.Tx) error {
			if _, err := target.Exec(attempt, limit); err != nil {
				return err
			}
			if err := m.last(attempt, target, at, epoch); err != nil {
				return err
			}
			if time.Since(closed) > m.cfg.Patience {
				return errNotYet
			}
			return nil
		}); err != nil {
			return err
		}
		var was string
		if err := source.QueryRow(attempt, statements.Get("release"), m.p, m.target.Name, m.source.move.revision).Scan(&was); err != nil {
			return fmt.Errorf("release: %w", err)
		}
		_, err = source.Exec(attempt, statements.Get("the source has released"), m.p)
		return err
	})
	if err != nil {
		m.target.move = before
		return err
	}
	m.target.move.epoch, m.target.move.state = epoch, ready
	m.source.move.state = released
	return nil
}

// awaitFolded waits until everything in the log is folded, while nothing is appended, and
// locks the position.
func (m *mover) awaitFolded(ctx context.Context, source pgx.Tx, deadline time.Time) (logread.Cursor, error) {
	pause := time.NewTicker(2 * time.Millisecond)
	defer pause.Stop()
	lock := ""
	for {
		at, err := logread.Load(ctx, source, m.p, lock)
		if err != nil {
			return at, err
		}
		var behind int64
		if err := source.QueryRow(ctx, statements.Of(m.p, "rows to fold"), at.TransactionID, at.Offset, pendingOf(at)).Scan(&behind); err != nil {
			return at, fmt.Errorf("look for what is not folded: %w", err)
		}
		switch {
		case behind == 0 && lock != "":
			return at, nil
		case behind == 0:
			lock = "FOR UPDATE"
			continue
		case time.Now().After(deadline):
			return at, errNotYet
		}
		select {
		case <-ctx.Done():
			return at, ctx.Err()
		case <-pause.C:
		}
	}
}

// last copies what is left into a transaction of the target, which is ready then.
func (m *mover) last(ctx context.Context, tx pgx.Tx, at logread.Cursor, epoch string) error {
	counted := m.target.move
	if _, err := m.changesInto(ctx, tx, at, math.MaxInt32); err != nil {
		return err
	}
	if err := m.translate(ctx, tx, counted, at); err != nil {
		return err
	}
	offsets := "badged." + events.Topic(m.p) + "_offsets"
	all := m.columns[offsets]
	if err := stage(ctx, tx, offsets, all); err != nil {
		return err
	}
	if _, err := m.pipe(ctx, `SELECT `+all.List("")+` FROM `+offsets, "moved_rows", all.List("")); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `DELETE FROM `+offsets); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, statements.Of(m.p, "positions"), m.p); err != nil {
		return err
	}
	var generation, offset int64
	if err := m.source.conn.QueryRow(ctx, statements.Of(m.p, "last numbers")).Scan(&generation, &offset); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, statements.Of(m.p, "raise the numbers"), generation, offset, m.target.move.behind+m.target.move.rows); err != nil {
		return err
	}
	if err := m.revocations(ctx, tx); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, statements.Get("the target is"), m.p, ready, epoch)
	return err
}

// revocations copies which tokens of the users are refused.
func (m *mover) revocations(ctx context.Context, tx pgx.Tx) error {
	var users []string
	var before, ended []time.Time
	var user string
	var b, e time.Time
	rows, _ := m.source.conn.Query(ctx, statements.Get("revocations"), m.p, m.source.partitions)
	if _, err := pgx.ForEachRow(rows, []any{&user, &b, &e}, func() error {
		users, before, ended = append(users, user), append(before, b), append(ended, e)
		return nil
	}); err != nil {
		return err
	}
	if len(users) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, statements.Get("add revocations"), users, before, ended)
	return err
}

// hold makes the target have the partition, unless a server has completed the move already.
func (m *mover) hold(ctx context.Context) error {
	began := time.Now()
	if err := hold(ctx, m.target, m.p, m.target.conn); err != nil {
		return err
	}
	m.target.move.state = held
	if m.result.Paused > 0 {
		m.result.Paused += time.Since(began)
	}
	return nil
}

// cleanUp deletes the rows from the source, whose triggers refuse the writers that have
// not heard of the move.
func (m *mover) cleanUp(ctx context.Context) error {
	m.cfg.Progress(CleaningUp, m.result.Rows)
	own := m.ownTables()
	err := m.patiently(ctx, m.source, own, func(tx pgx.Tx) error { return m.clear(ctx, tx) })
	if err != nil {
		return err
	}
	return m.target.in(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, statements.Get("forget the places"), m.p); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, statements.Get("forget a move"), m.p)
		return err
	})
}

// clear deletes the rows of the source.
func (m *mover) clear(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, m.trigger(statements.Of(m.p, "refuse appends"))); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `DROP TRIGGER IF EXISTS gate ON badged.`+events.Topic(m.p)); err != nil {
		return err
	}
	if err := m.truncate(ctx, tx); err != nil {
		return err
	}
	// Servers that had not heard of the move have revoked tokens here meanwhile.
	if _, err := tx.Exec(ctx, statements.Get("hold up revocations")); err != nil {
		return err
	}
	if err := m.target.in(ctx, func(target pgx.Tx) error { return m.revocations(ctx, target) }); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, statements.Get("forget revocations"), m.p, m.source.partitions)
	return err
}
