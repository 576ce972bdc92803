package moving

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/projector/internal/follow"
)

// ErrNoMove is returned if there is nothing to undo.
var ErrNoMove = errors.New("no move was begun")

// Undo gives up a move that was interrupted before the switch: the source notes no changes
// any more, and the target loses what was copied. It returns the names of the two.
func Undo(ctx context.Context, cfg Config) (from, to string, err error) {
	if cfg.Blocked == nil {
		cfg.Blocked = func(string, int, string) {}
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
		if one.move.state == released {
			return from, cfg.To, fmt.Errorf("%s has released partition %d already: finish the move with `badged partition move %[2]d --to %s`", from, cfg.Partition, cfg.To)
		}
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
	if !m.source.holds || m.source.move.state != copying {
		return from, cfg.To, fmt.Errorf("partition %d has left %s meanwhile", cfg.Partition, from)
	}
	if err := m.undo(ctx); err != nil {
		return from, cfg.To, fmt.Errorf("undo the move of partition %d: %w; %s still has it: run the command again", cfg.Partition, err, from)
	}
	return from, cfg.To, nil
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
