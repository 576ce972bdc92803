package moving

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/fold/logread"
	"github.com/badged/badged/internal/partition"
	"github.com/badged/badged/internal/partition/copier"
	"github.com/badged/badged/internal/pg/query"
)

// change makes the source release the partition to the target.
func (m *mover) change(ctx context.Context) error {
	err := m.Switch(ctx)
	if err == nil {
		return nil
	}
	if stopped, ok := errors.AsType[*copier.StoppedError](err); ok {
		return m.unchanged(stopped.Err)
	}
	return m.uncertain(ctx, err)
}

// unchanged wraps an error after which the source still has the partition.
func (m *mover) unchanged(err error) error {
	return fmt.Errorf("move partition %d to %s: %w; %s still has it, and nothing is lost: run the command again to continue with the copied rows, or `badged partition move %[1]d --undo` to undo the move", m.p, m.target.Name, err, m.source.Name)
}

// uncertain wraps an error of an attempt to switch. The source may have committed the release in
// spite of the error. So uncertain reads the state of the source, and the returned error says which
// database has the partition. If the source does not answer, the returned error says that the
// result is unknown.
func (m *mover) uncertain(ctx context.Context, err error) error {
	check, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	now := side{Database: m.source.Database}
	switch readErr := now.readState(check, m.source.Pool, m.p); {
	case readErr != nil:
		return fmt.Errorf("the switch of partition %d to %s failed: %w; %s may have released it, and does not answer: run the command again when %[4]s can be reached", m.p, m.target.Name, err, m.source.Name)
	case now.holds:
		return m.unchanged(err)
	}
	return fmt.Errorf("partition %d was released by %s, and %s has all its rows but does not hold it yet: run the command again: %w", m.p, m.source.Name, m.target.Name, err)
}

// Attempt implements copier.Operation. It copies all remaining rows, commits that the target is
// ready, and releases the partition in the transaction of the source.
func (m *mover) Attempt(ctx context.Context, source pgx.Tx, cursor logread.Cursor) error {
	round := newID()
	epoch, err := query.One[string](ctx, source, "read the epoch", statements.Get("epoch"), m.p)
	if err != nil {
		return err
	}
	if err := m.target.InTransaction(ctx, func(target pgx.Tx) error {
		if _, err := target.Exec(ctx, fmt.Sprintf(`SET LOCAL statement_timeout = %d`, m.Patience.Milliseconds())); err != nil {
			return err
		}
		if err := m.last(ctx, target, cursor, epoch, round); err != nil {
			return err
		}
		return m.Overdue()
	}); err != nil {
		return err
	}
	m.stored = m.target.move
	var was string
	if err := source.QueryRow(ctx, statements.Get("release"), m.p, m.target.Name, m.source.move.revision).Scan(&was); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	if _, err := source.Exec(ctx, statements.Get("the source has released"), m.p, round); err != nil {
		return err
	}
	m.target.move.epoch, m.target.move.state, m.target.move.round = epoch, ready, round
	m.source.move.state, m.source.move.round = released, round
	return nil
}

// last copies all remaining rows in a transaction of the target, and sets the state of the target
// to ready.
func (m *mover) last(ctx context.Context, tx pgx.Tx, cursor logread.Cursor, epoch, round string) error {
	if _, err := m.Changes(ctx, tx, cursor, math.MaxInt32); err != nil {
		return err
	}
	offsets := partition.Log(m.p) + "_offsets"
	if err := m.StageAll(ctx, tx, offsets); err != nil {
		return err
	}
	var generation, offset int64
	if err := m.source.Conn.QueryRow(ctx, statements.Of(m.p, "last numbers")).Scan(&generation, &offset); err != nil {
		return err
	}
	if err := m.lastRevocations(ctx, tx); err != nil {
		return err
	}
	if err := m.copyMap(ctx, tx); err != nil {
		return err
	}
	var batch pgx.Batch
	batch.Queue(`DELETE FROM ` + offsets)
	batch.Queue(statements.Of(m.p, "positions"), m.p)
	batch.Queue(statements.Of(m.p, "raise the numbers"), generation, offset, m.target.move.baseOffset+m.target.move.rows)
	batch.Queue(statements.Get("the target is"), m.p, ready, epoch, round)
	return tx.SendBatch(ctx, &batch).Close()
}

// copyMap adds the entries of the source's map to the target's map. Without them, the target might
// not know the split that created the partition, and would look for the partition's users in the
// partition that was split.
func (m *mover) copyMap(ctx context.Context, tx pgx.Tx) error {
	var partitions []int
	var names []string
	var revisions []int64
	var p int
	var name string
	var revision int64
	if err := query.Each(ctx, m.source.Conn, "read the map of "+m.source.Name, statements.Get("the map"), nil, []any{&p, &name, &revision}, func() error {
		partitions, names, revisions = append(partitions, p), append(names, name), append(revisions, revision)
		return nil
	}); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, statements.Get("add to the map"), partitions, names, revisions)
	return err
}

// revocationsPage is the number of revocations that one call reads.
const revocationsPage = 10_000

// revocations reads a page of the source's token revocations: the revocations that follow the
// number `after`. It copies the revocations for users of the partition to the target. It returns
// the last number of the page, or `after` if the page is empty.
func (m *mover) revocations(ctx context.Context, tx pgx.Tx, after int64) (last int64, err error) {
	var users []string
	var before, ended []time.Time
	var seq *int64
	var user *string
	var b, e *time.Time
	if err := query.Each(ctx, m.source.Conn, "read the revocations of "+m.source.Name, statements.Get("revocations"), []any{m.p, after, revocationsPage}, []any{&seq, &user, &b, &e}, func() error {
		if user != nil {
			users, before, ended = append(users, *user), append(before, *b), append(ended, *e)
		}
		return nil
	}); err != nil {
		return after, err
	}
	if len(users) > 0 {
		if err := query.Exec(ctx, tx, "store the revocations on "+m.target.Name, statements.Get("add revocations"), users, before, ended); err != nil {
			return after, err
		}
	}
	if seq == nil {
		return after, nil
	}
	return *seq, nil
}

// lastRevocations copies all revocations whose number is greater than m.revoked. It does not change
// m.revoked, so a later call copies them again.
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

// hold makes the target hold the partition. It also succeeds if the target holds the partition
// already, because a server has called Complete.
func (m *mover) hold(ctx context.Context) error {
	if err := hold(ctx, m.target, m.p, m.target.Conn); err != nil {
		return err
	}
	m.target.move.state = held
	if !m.Closed.IsZero() {
		m.result.Paused = time.Since(m.Closed)
	}
	return nil
}

// cleanUp deletes the partition's rows from the source. From then on a trigger on the source's log
// refuses appends by servers with an old map.
func (m *mover) cleanUp(ctx context.Context) error {
	m.Progress(copier.CleaningUp, m.result.Rows)
	err := m.source.RetryOnLock(ctx, partition.OwnTables(m.p), func(tx pgx.Tx) error { return m.clear(ctx, tx) })
	if err != nil {
		return err
	}
	if m.onlyOldRows {
		return nil // the target's record belongs to a later move
	}
	return m.target.InTransaction(ctx, func(tx pgx.Tx) error { return copier.Forget(ctx, tx, m.p) })
}

// clear deletes the rows of the source.
func (m *mover) clear(ctx context.Context, tx pgx.Tx) error {
	if err := copier.Clear(ctx, tx, m.p); err != nil {
		return err
	}
	// Since the switch, servers with an old map may have stored revocations on the source. Copy
	// these revocations to the target.
	if _, err := tx.Exec(ctx, statements.Get("hold up revocations")); err != nil {
		return err
	}
	if err := m.target.InTransaction(ctx, func(target pgx.Tx) error { return m.lastRevocations(ctx, target) }); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, statements.Get("forget revocations"), m.p)
	return err
}
