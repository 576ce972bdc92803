package moving

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/internal/follow"
	"github.com/badged/badged/projector/internal/logread"
)

// change makes the target have the partition, as far as the source is concerned.
func (m *mover) change(ctx context.Context) error {
	err := m.source.Switch(ctx, func() error { return m.catchUp(ctx) }, func() error {
		m.result.Attempts++
		return m.attempt(ctx)
	}, func(behind int64) { m.cfg.Progress(Waiting, behind) })
	if err == nil {
		return nil
	}
	if stopped, ok := errors.AsType[*follow.StoppedError](err); ok {
		return m.stays(stopped.Err)
	}
	return m.uncertain(ctx, err)
}

// stays wraps an error before anything has happened.
func (m *mover) stays(err error) error {
	return fmt.Errorf("move partition %d to %s: %w; %s still has it, and nothing is lost: run the command again to go on with what is copied, or `badged partition move %[1]d --undo` to give up", m.p, m.target.Name, err, m.source.Name)
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

// attempt closes the gates and, if all is folded soon, copies the rest and releases the
// partition.
func (m *mover) attempt(ctx context.Context) error {
	m.cfg.Progress(Switching, m.result.Rows)
	before, round := m.target.move, newID()
	attempt, cancel := context.WithTimeout(ctx, 20*time.Second) // a shard that hangs
	defer cancel()
	var gone time.Time
	epoch, limit := "", fmt.Sprintf(`SET LOCAL statement_timeout = %d`, m.cfg.Patience.Milliseconds())
	err := m.source.In(attempt, func(source pgx.Tx) error {
		closed, at, err := m.source.CloseGates(attempt, source, m.cfg.Patience)
		if err != nil {
			return err
		}
		gone = closed
		if err := source.QueryRow(attempt, statements.Get("epoch"), m.p).Scan(&epoch); err != nil {
			return fmt.Errorf("read the epoch: %w", err)
		}
		if err := m.target.In(attempt, func(target pgx.Tx) error {
			if _, err := target.Exec(attempt, limit); err != nil {
				return err
			}
			if err := m.last(attempt, target, at, epoch, round); err != nil {
				return err
			}
			return m.source.Overdue()
		}); err != nil {
			return err
		}
		before = m.target.move // the target has committed
		var was string
		if err := source.QueryRow(attempt, statements.Get("release"), m.p, m.target.Name, m.source.move.revision).Scan(&was); err != nil {
			return fmt.Errorf("release: %w", err)
		}
		_, err = source.Exec(attempt, statements.Get("the source has released"), m.p, round)
		return err
	})
	if err != nil {
		m.target.move = before
		return err
	}
	m.target.move.epoch, m.target.move.state, m.target.move.round = epoch, ready, round
	m.source.move.state, m.source.move.round = released, round
	m.closed = gone
	return nil
}

// last copies what is left into a transaction of the target, which is ready then.
func (m *mover) last(ctx context.Context, tx pgx.Tx, at logread.Cursor, epoch, round string) error {
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
	if err := m.lastRevocations(ctx, tx); err != nil {
		return err
	}
	if err := m.shareMap(ctx, tx); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, statements.Get("the target is"), m.p, ready, epoch, round)
	return err
}

// shareMap tells the target what the source knows of the map. If the partition came from
// splitting another, the target may not have heard of that, and would look for the users in
// the one that has ended.
func (m *mover) shareMap(ctx context.Context, tx pgx.Tx) error {
	var partitions []int
	var shards []string
	var revisions []int64
	var p int
	var shard string
	var revision int64
	rows, _ := m.source.conn.Query(ctx, statements.Get("the map"))
	if _, err := pgx.ForEachRow(rows, []any{&p, &shard, &revision}, func() error {
		partitions, shards, revisions = append(partitions, p), append(shards, shard), append(revisions, revision)
		return nil
	}); err != nil {
		return fmt.Errorf("read the map of %s: %w", m.source.Name, err)
	}
	_, err := tx.Exec(ctx, statements.Get("add to the map"), partitions, shards, revisions)
	return err
}

// revocationsPage is how many revocations are looked at for one transaction of the target.
const revocationsPage = 10_000

// revocations copies which tokens of the users are refused, of a page of what was revoked
// after a number, and returns the last number of it: the same if there is none.
func (m *mover) revocations(ctx context.Context, tx pgx.Tx, after int64) (last int64, err error) {
	var users []string
	var before, ended []time.Time
	var seq *int64
	var user *string
	var b, e *time.Time
	rows, _ := m.source.conn.Query(ctx, statements.Get("revocations"), m.p, after, revocationsPage)
	if _, err := pgx.ForEachRow(rows, []any{&seq, &user, &b, &e}, func() error {
		if user != nil {
			users, before, ended = append(users, *user), append(before, *b), append(ended, *e)
		}
		return nil
	}); err != nil {
		return after, fmt.Errorf("read the revocations of %s: %w", m.source.Name, err)
	}
	if len(users) > 0 {
		if _, err := tx.Exec(ctx, statements.Get("add revocations"), users, before, ended); err != nil {
			return after, fmt.Errorf("store the revocations on %s: %w", m.target.Name, err)
		}
	}
	if seq == nil {
		return after, nil
	}
	return *seq, nil
}

// lastRevocations copies what was revoked since the rest was copied.
func (m *mover) lastRevocations(ctx context.Context, tx pgx.Tx) error {
	for before, last := int64(-1), m.revoked; before != last; {
		before = last
		var err error
		if last, err = m.revocations(ctx, tx, last); err != nil {
			return err
		}
	}
	return nil
}

// hold makes the target have the partition, unless a server has completed the move already.
func (m *mover) hold(ctx context.Context) error {
	if err := hold(ctx, m.target, m.p, m.target.conn); err != nil {
		return err
	}
	m.target.move.state = held
	if !m.closed.IsZero() {
		m.result.Paused = time.Since(m.closed)
	}
	return nil
}

// cleanUp deletes the rows from the source, whose triggers refuse the writers that have
// not heard of the move.
func (m *mover) cleanUp(ctx context.Context) error {
	m.cfg.Progress(CleaningUp, m.result.Rows)
	own := follow.OwnTables(m.p)
	err := m.source.RetryOnLock(ctx, own, func(tx pgx.Tx) error { return m.clear(ctx, tx) })
	if err != nil {
		return err
	}
	if m.leftOver {
		return nil // what the target notes is of a later move
	}
	return m.target.In(ctx, func(tx pgx.Tx) error { return follow.Forget(ctx, tx, m.p) })
}

// clear deletes the rows of the source.
func (m *mover) clear(ctx context.Context, tx pgx.Tx) error {
	if err := follow.Refuse(ctx, tx, m.p); err != nil {
		return err
	}
	if err := follow.Ungate(ctx, tx, m.p); err != nil {
		return err
	}
	if err := follow.Empty(ctx, tx, m.p); err != nil {
		return err
	}
	// Servers that had not heard of the move have revoked tokens here meanwhile.
	if _, err := tx.Exec(ctx, statements.Get("hold up revocations")); err != nil {
		return err
	}
	if err := m.target.In(ctx, func(target pgx.Tx) error { return m.lastRevocations(ctx, target) }); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, statements.Get("forget revocations"), m.p)
	return err
}
