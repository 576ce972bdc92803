package moving

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/partition/copier"
)

// ErrNoMove is returned if there is nothing to undo.
var ErrNoMove = errors.New("no move was begun")

// Undo reverts a move that was interrupted before the switch: it drops the triggers on the source
// and deletes the copied rows from the target. It also reverts a switched move whose target has
// lost rows: then the source holds the partition again, with the rows that it had at the switch.
// Undo returns the names of the source and the target.
func Undo(ctx context.Context, cfg Config) (from, to string, err error) {
	var away error
	for _, s := range cfg.Databases {
		one := side{Database: s}
		if err := one.readState(ctx, s.Pool, cfg.Partition); err != nil {
			away = errors.Join(away, err)
			continue
		}
		if cfg.Partition < 0 {
			return "", "", fmt.Errorf("%w as %d", ErrUnknownPartition, cfg.Partition)
		}
		if one.move.role != sourceRole || one.move.target == "" { // splits have no target
			continue
		}
		from, cfg.To = s.Name, one.move.target
	}
	if from == "" {
		return "", "", errors.Join(fmt.Errorf("%w of partition %d", ErrNoMove, cfg.Partition), away)
	}
	cfg.Progress = nil
	m, err := open(ctx, cfg)
	if err != nil {
		return from, cfg.To, err
	}
	defer m.close(ctx)
	if err := m.reclaim(ctx, away); err != nil {
		return from, cfg.To, err
	}
	if !m.source.holds || m.source.move.role != sourceRole || m.source.move.state != copying {
		return from, cfg.To, fmt.Errorf("%w of partition %d any more", ErrNoMove, cfg.Partition)
	}
	if err := m.undo(ctx); err != nil {
		return from, cfg.To, fmt.Errorf("undo the move of partition %d: %w; %s still has it: run the command again", cfg.Partition, err, from)
	}
	return from, cfg.To, nil
}

// reclaim makes the source hold the partition again, if the source has released the partition and
// the target has lost rows of the partition. `unavailable` is the error of the databases that
// could not be read, or nil.
func (m *mover) reclaim(ctx context.Context, unavailable error) error {
	from, to := m.source, m.target
	switch {
	case !from.hasReleased(to):
		return nil
	case to.holds || to.has(from.move):
		return fmt.Errorf("%s has released partition %d already: finish the move with `badged partition move %[2]d --to %s`", from.Name, m.p, to.Name)
	case unavailable != nil:
		return fmt.Errorf("another database, which cannot be read, may have partition %d: %w", m.p, unavailable)
	}
	revision := max(from.revision, to.revision)
	for _, s := range m.cfg.Databases {
		one := side{Database: s}
		if err := one.readState(ctx, s.Pool, m.p); err != nil {
			return err
		}
		if one.holds {
			return fmt.Errorf("%s has released partition %d, and %s has it now", from.Name, m.p, s.Name)
		}
		revision = max(revision, one.revision)
	}
	if _, err := from.Conn.Exec(ctx, statements.Get("take back"), m.p, revision+1); err != nil {
		return fmt.Errorf("make %s hold partition %d again: %w", from.Name, m.p, err)
	}
	m.updateMaps(ctx, from.Name, revision+1)
	return from.readState(ctx, from.Conn, m.p)
}

// undo empties the target, and then drops the triggers and deletes the record of the move on the
// source. The record is deleted last, so that an interrupted undo can be repeated.
func (m *mover) undo(ctx context.Context) error {
	if err := m.target.InTransaction(ctx, func(tx pgx.Tx) error { return copier.Clear(ctx, tx, m.p) }); err != nil {
		return err
	}
	return m.source.Unwatch(ctx)
}
