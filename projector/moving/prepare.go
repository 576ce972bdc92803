package moving

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/pgsession"
	"github.com/badged/badged/projector/internal/follow"
)

// prepare continues the move that was begun, if the target has all that had not changed
// and every change since was noted. Otherwise it begins.
func (m *mover) prepare(ctx context.Context) error {
	m.cfg.Progress(Preparing, 0)
	if err := m.readColumns(ctx); err != nil {
		return err
	}
	from, to := m.source.move, m.target.move
	if from.role == sourceRole && to.role == targetRole && from.id == to.id && (to.state == copied || to.state == ready) {
		var triggers int
		var replaced bool
		err := m.source.conn.QueryRow(ctx, statements.Get("count the triggers"), m.watched()).Scan(&triggers)
		if err == nil {
			err = m.source.conn.QueryRow(ctx, statements.Get("was a frozen table changed"), m.p).Scan(&replaced)
		}
		if err != nil {
			return fmt.Errorf("on %s: %w", m.source.Name, err)
		}
		if !replaced && triggers == len(m.watched())+1 { // the log has two
			m.result.Resumed = true
			m.result.LogRows = to.rows
			return nil
		}
	}
	return m.begin(ctx)
}

// readColumns reads the columns of all tables. They are the same in both databases.
func (m *mover) readColumns(ctx context.Context) error {
	read := func(s *side, name string) (follow.Columns, error) {
		rows, _ := s.conn.Query(ctx, statements.Get("columns of a table"), name)
		c, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c follow.Column, err error) {
			err = row.Scan(&c.Name, &c.Type)
			return c, err
		})
		if err != nil {
			return nil, fmt.Errorf("read the columns of %s on %s: %w", name, s.Name, err)
		}
		return c, nil
	}
	for _, name := range append(m.watched(), "badged."+events.Topic(m.p)+"_offsets") {
		c, err := read(m.source, name)
		if err != nil {
			return err
		}
		other, err := read(m.target, name)
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

// begin empties the tables of the target, and makes the source note what changes.
func (m *mover) begin(ctx context.Context) error {
	from, to := m.source, m.target
	id, revision := newID(), max(from.revision, to.revision)+1
	var behind int64
	if err := from.conn.QueryRow(ctx, statements.Of(m.p, "last offset"), m.p).Scan(&behind); err != nil {
		return fmt.Errorf("read the last offset of the log on %s: %w", from.Name, err)
	}
	err := to.in(ctx, func(tx pgx.Tx) error {
		if err := m.empty(ctx, tx); err != nil {
			return err
		}
		// The mover passes this gate, others find that the partition is not there.
		if _, err := tx.Exec(ctx, m.trigger(statements.Of(m.p, "gate the log"))); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `DROP TRIGGER IF EXISTS not_held ON badged.`+events.Topic(m.p)); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, statements.Get("begin at the target"), m.p, id, from.Name, to.Name, revision, behind)
		return err
	})
	if err != nil {
		return err
	}
	if _, err := to.conn.Exec(ctx, statements.Get("settle the ranges"), m.p); err != nil {
		return fmt.Errorf("on %s: %w", to.Name, err)
	}
	err = from.in(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, statements.Get("begin at the source"), m.p, id, from.Name, to.Name, revision); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, statements.Get("forget the changes"), m.p)
		return err
	})
	if err != nil {
		return err
	}
	if err := m.watch(ctx); err != nil {
		return err
	}
	var all []string
	for _, t := range follow.Tables() {
		if t.Form == follow.Whole {
			all = append(all, t.Kind)
		}
	}
	err = from.in(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, statements.Get("copy a table as a whole"), m.p, all); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, statements.Get("copy all late folds"), m.p)
		return err
	})
	if err != nil {
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

// watch creates the triggers of the source. Each waits only for a moment, since others
// wait behind it.
func (m *mover) watch(ctx context.Context) error {
	create := func(table string, run func(tx pgx.Tx) error) error {
		return m.patiently(ctx, m.source, []string{table}, run)
	}
	log := "badged." + events.Topic(m.p)
	if err := create(log, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, m.trigger(statements.Of(m.p, "gate the log"))); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, m.trigger(statements.Of(m.p, "watch the payloads")))
		return err
	}); err != nil {
		return err
	}
	for _, t := range follow.Tables() {
		kind, key := t.Kind+t.Suffix, t.Key
		if t.Form == follow.Whole {
			key = []string{}
		}
		if err := create(t.Name(m.p), func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, statements.Get("watch a table"), m.p, t.Name(m.p), kind, t.Shared, key)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// patiently runs f in a transaction, as often as needed to get its locks, and tells who
// has them.
func (m *mover) patiently(ctx context.Context, s *side, locked []string, f func(tx pgx.Tx) error) error {
	blocked := pgsession.Blocking{Conn: s.conn, Partition: m.p, Tables: locked, Tell: func(_, pid int, application string) { m.cfg.Blocked(s.Name, pid, application) }}
	for {
		err := s.in(ctx, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, pgsession.SetSwapPatienceSQL); err != nil {
				return err
			}
			return f(tx)
		})
		if !pgsession.IsLocked(err) {
			return err
		}
		if err := blocked.Wait(ctx); err != nil {
			return err
		}
	}
}

// empty deletes all rows of the partition, and triggers of an earlier move. The tables
// belong to a shard that does not have the partition.
func (m *mover) empty(ctx context.Context, tx pgx.Tx) error {
	for _, name := range m.ownTables() {
		if _, err := tx.Exec(ctx, `DROP TRIGGER IF EXISTS moving ON `+name); err != nil {
			return err
		}
	}
	return m.truncate(ctx, tx)
}

// truncate deletes all rows of the partition, and what is noted of a move.
func (m *mover) truncate(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, `TRUNCATE `+strings.Join(m.ownTables(), ", ")); err != nil {
		return err
	}
	for _, t := range follow.Tables() {
		if t.Shared {
			if _, err := tx.Exec(ctx, `DELETE FROM `+t.Name(m.p)+` WHERE partition_id = $1`, m.p); err != nil {
				return err
			}
		}
	}
	for _, sql := range []string{statements.Get("forget a move"), statements.Get("forget the changes"), statements.Get("forget the places")} {
		if _, err := tx.Exec(ctx, sql, m.p); err != nil {
			return err
		}
	}
	return nil
}

// trigger returns a statement with PARTITION replaced: triggers have no parameters.
func (m *mover) trigger(sql string) string {
	return strings.ReplaceAll(sql, "PARTITION", fmt.Sprint(m.p))
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

// analyze gives the planner of the target statistics, which it lacks until autovacuum
// comes.
func (m *mover) analyze(ctx context.Context) error {
	for _, name := range m.ownTables() {
		if _, err := m.target.conn.Exec(ctx, `ANALYZE `+name); err != nil {
			return fmt.Errorf("on %s: %w", m.target.Name, err)
		}
	}
	return nil
}
