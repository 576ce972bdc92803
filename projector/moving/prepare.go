package moving

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/internal/follow"
)

// prepare continues a move if the target has all rows of the last round, triggers have recorded
// every change since, no shard has lost any of it, and no log was renumbered. Otherwise it begins
// anew.
func (m *mover) prepare(ctx context.Context) error {
	m.cfg.Progress(Preparing, 0)
	if m.p >= m.target.partitions {
		if err := m.target.RetryOnLock(ctx, []string{"badged.webhooks", "badged.users", "badged.conversations"}, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, statements.Get("create the tables"), m.p)
			return err
		}); err != nil {
			return fmt.Errorf("create the tables of partition %d: %w", m.p, err)
		}
	}
	if err := m.readColumns(ctx); err != nil {
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
			m.result.LogRows = to.rows
			return nil
		}
	}
	return m.begin(ctx)
}

// readColumns reads the columns of all tables. They are the same in both databases.
func (m *mover) readColumns(ctx context.Context) error {
	for _, name := range append(follow.Watched(m.p), "badged."+events.Topic(m.p)+"_offsets") {
		c, err := m.source.Columns(ctx, name)
		if err != nil {
			return err
		}
		other, err := m.target.Columns(ctx, name)
		if err != nil {
			return err
		}
		if c.List("") != other.List("") {
			return fmt.Errorf("%s has other columns on %s than on %s: run `badged migrate up`", name, m.source.Name, m.target.Name)
		}
		m.columns[name] = c
	}
	return nil
}

// begin empties the tables of the target, and creates the triggers on the source.
func (m *mover) begin(ctx context.Context) error {
	from, to := m.source, m.target
	id, revision := newID(), max(from.revision, to.revision)+1
	var behind int64
	if err := from.conn.QueryRow(ctx, statements.Of(m.p, "last offset"), m.p).Scan(&behind); err != nil {
		return fmt.Errorf("read the last offset of the log on %s: %w", from.Name, err)
	}
	err := to.RetryOnLock(ctx, follow.OwnTables(m.p), func(tx pgx.Tx) error {
		if err := m.empty(ctx, tx); err != nil {
			return err
		}
		// The mover passes this gate, others find that the partition is not there.
		if err := follow.Gate(ctx, tx, m.p); err != nil {
			return err
		}
		if err := follow.Admit(ctx, tx, m.p); err != nil {
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
	err = from.In(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, statements.Get("begin at the source"), m.p, id, from.Name, to.Name, revision); err != nil {
			return err
		}
		return follow.ForgetChanges(ctx, tx, m.p)
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
	if err := from.look(ctx, from.conn, m.p); err != nil {
		return err
	}
	return to.look(ctx, to.conn, m.p)
}

// empty deletes all rows of the partition, and triggers of an earlier move. The tables
// belong to a shard that does not have the partition.
func (m *mover) empty(ctx context.Context, tx pgx.Tx) error {
	for _, name := range follow.OwnTables(m.p) {
		if _, err := tx.Exec(ctx, `DROP TRIGGER IF EXISTS moving ON `+name); err != nil {
			return err
		}
	}
	return follow.Empty(ctx, tx, m.p)
}

// addWebhooks adds the webhooks that the target lacks.
func (m *mover) addWebhooks(ctx context.Context) error {
	rows, _ := m.source.conn.Query(ctx, statements.Get("webhooks"))
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("on %s: %w", m.source.Name, err)
	}
	if _, err := m.target.conn.Exec(ctx, statements.Get("add webhooks"), all); err != nil {
		return fmt.Errorf("on %s: %w", m.target.Name, err)
	}
	return nil
}

// analyze gives the planner of the target statistics, which otherwise autovacuum would make
// later.
func (m *mover) analyze(ctx context.Context) error {
	for _, name := range follow.OwnTables(m.p) {
		if _, err := m.target.conn.Exec(ctx, `ANALYZE `+name); err != nil {
			return fmt.Errorf("on %s: %w", m.target.Name, err)
		}
	}
	return nil
}
