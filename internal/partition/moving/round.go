package moving

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/fold/logread"
	"github.com/badged/badged/internal/partition/copier"
	"github.com/badged/badged/internal/pg/query"
)

// Mark implements copier.Operation.
func (m *mover) Mark() (forget func()) {
	m.stored = m.target.move
	return func() { m.target.move = m.stored }
}

// Round implements copier.Operation. Both databases store the random id of the round, and the target
// commits before the source. So if a database loses a commit, the ids differ, and a later call
// detects the loss; see badged.moves in 00007_cluster.sql.
func (m *mover) Round(ctx context.Context, limit int) (int, error) {
	var done copier.Changes
	round := newID()
	err := pgx.BeginTxFunc(ctx, m.source.Conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(source pgx.Tx) error {
		cursor, err := logread.Load(ctx, source, m.p, "")
		if err != nil {
			return err
		}
		if err := m.target.InTransaction(ctx, func(target pgx.Tx) error {
			if done, err = m.Changes(ctx, target, cursor, limit); err != nil {
				return err
			}
			_, err = target.Exec(ctx, statements.Get("the round is"), m.p, round)
			return err
		}); err != nil {
			return err
		}
		if err := m.source.Copied(ctx, done.Numbers); err != nil {
			return err
		}
		return query.Exec(ctx, source, "on "+m.source.Name, statements.Get("the round is"), m.p, round)
	})
	return len(done.Numbers), err
}
