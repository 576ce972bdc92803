package moving

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/partition"
	"github.com/badged/badged/internal/partition/copier"
	"github.com/badged/badged/internal/pg/query"
)

// prepare continues the copy of an interrupted move if possible. There are four conditions: the
// target has all rows of the last round, triggers have recorded every change since that round,
// neither database was restored to a time before that round, and neither log was renumbered.
// Otherwise prepare begins a new copy.
func (m *mover) prepare(ctx context.Context) error {
	m.Progress(copier.Preparing, 0)
	if m.p >= m.target.partitions {
		if err := m.target.CreateTables(ctx, m.p); err != nil { // the partition came from a split
			return err
		}
	}
	if err := m.ReadColumns(ctx); err != nil {
		return err
	}
	from, to := m.source.move, m.target.move
	if from.role == sourceRole && to.role == targetRole && from.id == to.id && from.round == to.round && from.round != "" && (to.state == copied || to.state == ready) && from.settled && to.settled {
		still, err := m.source.WatchedStill(ctx)
		if err != nil {
			return err
		}
		if still {
			m.result.Resumed = true
			m.result.LogRows, m.counted = to.rows, to
			return nil
		}
	}
	return m.begin(ctx)
}

// begin begins a new copy: it empties the tables of the target, and creates the triggers on the
// source.
func (m *mover) begin(ctx context.Context) error {
	from, to := m.source, m.target
	id, revision := newID(), max(from.revision, to.revision)+1
	behind, err := query.One[int64](ctx, from.Conn, "read the last offset of the log on "+from.Name, m.withPlaces(statements.Of(m.p, "last offset")))
	if err != nil {
		return err
	}
	err = to.RetryOnLock(ctx, partition.OwnTables(m.p), func(tx pgx.Tx) error {
		if err := copier.OpenForCopy(ctx, tx, m.p); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, statements.Get("begin at the target"), m.p, id, from.Name, to.Name, revision, behind); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, statements.Get("settle the ranges"), m.p)
		return err
	})
	if err != nil {
		return err
	}
	err = from.InTransaction(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, statements.Get("begin at the source"), m.p, id, from.Name, to.Name, revision); err != nil {
			return err
		}
		return copier.ForgetChanges(ctx, tx, m.p)
	})
	if err != nil {
		return err
	}
	if err := from.Watch(ctx); err != nil {
		return err
	}
	if err := m.addWebhooks(ctx); err != nil {
		return err
	}
	if err := from.readState(ctx, from.Conn, m.p); err != nil {
		return err
	}
	err = to.readState(ctx, to.Conn, m.p)
	m.counted = to.move
	return err
}

// addWebhooks adds the source's webhooks to the target, except webhooks whose names the target has
// already. The move also copies queued calls, which refer to webhooks.
func (m *mover) addWebhooks(ctx context.Context) error {
	all, err := query.All(ctx, m.source.Conn, "on "+m.source.Name, pgx.RowTo[string], statements.Get("webhooks"))
	if err != nil {
		return err
	}
	return query.Exec(ctx, m.target.Conn, "on "+m.target.Name, statements.Get("add webhooks"), all)
}
