package moving

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/pgsession"
	"github.com/badged/badged/projector/internal/follow"
)

// ErrNoMove is returned if there is nothing to undo.
var ErrNoMove = errors.New("no move was begun")

// Undo gives up a move that was interrupted before the switch: the source notes no changes
// any more, and the target loses what was copied. It also gives up one whose target has lost
// some of the partition behind the switch: the source then holds the partition again, as it
// was before the switch. It returns the names of the two.
func Undo(ctx context.Context, cfg Config) (from, to string, err error) {
	if cfg.Blocked == nil {
		cfg.Blocked = func(string, pgsession.Holder) {}
	}
	var away error
	for _, s := range cfg.Shards {
		one := side{Shard: s}
		if err := one.look(ctx, s.Pool, cfg.Partition); err != nil {
			away = errors.Join(away, err)
			continue
		}
		if cfg.Partition < 0 {
			return "", "", fmt.Errorf("%w as %d", ErrUnknownPartition, cfg.Partition)
		}
		if one.move.role != sourceRole || one.move.target == "" { // the latter is of a split
			continue
		}
		from, cfg.To = s.Name, one.move.target
	}
	if from == "" {
		return "", "", errors.Join(fmt.Errorf("%w of partition %d", ErrNoMove, cfg.Partition), away)
	}
	cfg.Progress = func(Step, int64) {}
	m, err := open(ctx, cfg)
	if err != nil {
		return from, cfg.To, err
	}
	defer m.close(ctx)
	if err := m.takeBack(ctx, away); err != nil {
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

// takeBack makes the source hold the partition that it has released, if the target has lost
// some of it. away says which shards could not be asked.
func (m *mover) takeBack(ctx context.Context, away error) error {
	from, to := m.source, m.target
	switch {
	case !from.hasReleased(to):
		return nil
	case to.holds || to.has(from.move):
		return fmt.Errorf("%s has released partition %d already: finish the move with `badged partition move %[2]d --to %s`", from.Name, m.p, to.Name)
	case away != nil:
		return fmt.Errorf("whether another shard has partition %d is not known: %w", m.p, away)
	}
	revision := max(from.revision, to.revision)
	for _, s := range m.cfg.Shards {
		one := side{Shard: s}
		if err := one.look(ctx, s.Pool, m.p); err != nil {
			return err
		}
		if one.holds {
			return fmt.Errorf("%s has released partition %d, and %s has it now", from.Name, m.p, s.Name)
		}
		revision = max(revision, one.revision)
	}
	if _, err := from.conn.Exec(ctx, statements.Get("take back"), m.p, revision+1); err != nil {
		return fmt.Errorf("make %s hold partition %d again: %w", from.Name, m.p, err)
	}
	m.tellOthers(ctx, from.Name, revision+1)
	return from.look(ctx, from.conn, m.p)
}

// undo empties the target and then ends noting changes in the source, which says until
// then that a move was begun.
func (m *mover) undo(ctx context.Context) error {
	err := m.target.In(ctx, func(tx pgx.Tx) error {
		if err := m.empty(ctx, tx); err != nil {
			return err
		}
		if err := follow.Refuse(ctx, tx, m.p); err != nil {
			return err
		}
		return follow.Ungate(ctx, tx, m.p)
	})
	if err != nil {
		return err
	}
	return m.source.Unwatch(ctx)
}
