package moving

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/internal/follow"
	"github.com/badged/badged/projector/internal/logread"
)

// round copies the log as far as it is folded, and at most that many of the changes, as they
// are in one snapshot. It returns how many there were.
//
// The source commits the round after the target, and after all that it has read: see
// badged.moves in 00007_cluster.sql.
func (m *mover) round(ctx context.Context, most int) (int, error) {
	var done follow.Changes
	before, round := m.target.move, newID()
	err := pgx.BeginTxFunc(ctx, m.source.conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(source pgx.Tx) error {
		at, err := logread.Load(ctx, source, m.p, "")
		if err != nil {
			return err
		}
		if err := m.target.In(ctx, func(target pgx.Tx) error {
			if done, err = m.changesInto(ctx, target, at, most); err != nil {
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
		if _, err := source.Exec(ctx, statements.Get("the round is"), m.p, round); err != nil {
			return fmt.Errorf("on %s: %w", m.source.Name, err)
		}
		return nil
	})
	if err != nil {
		m.target.move = before
		return 0, err
	}
	return len(done.Numbers), nil
}

// changesInto copies the log up to a cursor and the changes into a transaction of the
// target, from a transaction of the source in which all that it reads stays the same.
func (m *mover) changesInto(ctx context.Context, target pgx.Tx, at logread.Cursor, most int) (follow.Changes, error) {
	done, err := m.source.NotedChanges(ctx, most)
	if err != nil {
		return done, err
	}
	counted := m.target.move
	for more := true; more; {
		if more, err = m.copyChunk(ctx, target, at); err != nil {
			return done, err
		}
		if err := m.source.Overdue(); err != nil {
			return done, err
		}
	}
	if slices.ContainsFunc(follow.Tables(), func(t follow.Table) bool { return t.Places != follow.NoPlace && done.Kinds[t.Kind] }) {
		if err := m.translate(ctx, target, counted, at); err != nil {
			return done, err
		}
	}
	for _, t := range follow.Tables() {
		if t.Form == follow.Frozen || !done.Kinds[t.Kind] {
			continue
		}
		if err := m.follow(ctx, target, t, done.Last); err != nil {
			return done, fmt.Errorf("copy what has changed in %s: %w", t.Name(m.p), err)
		}
		if err := m.source.Overdue(); err != nil {
			return done, err
		}
	}
	return done, nil
}

// follow copies the rows of a table that have changed.
func (m *mover) follow(ctx context.Context, tx pgx.Tx, t follow.Table, last int64) error {
	name := t.Name(m.p)
	all := m.columns[name]
	if err := stage(ctx, tx, name, all); err != nil {
		return err
	}
	query := fmt.Sprintf(`SELECT %s FROM %s AS t WHERE %s`, all.List("t."), name, t.Of(m.p))
	changed := m.source.Keys(t.Kind, last)
	if t.Form == follow.ByKey {
		key := all.Of(t.Key)
		query = fmt.Sprintf(`SELECT %s FROM (%s) AS k JOIN %s AS t ON (%s) = (%s) WHERE %s`,
			all.List("t."), changed, name, key.List("t."), key.FromKey("k.key"), t.Of(m.p))
	}
	n, err := m.pipe(ctx, query, "moved_rows", all.List(""))
	if err != nil {
		return err
	}
	m.copiedRows(CatchingUp, n)
	switch t.Places {
	case follow.OfRow:
		_, err = tx.Exec(ctx, statements.Get("translate places of rows"), m.p)
	case follow.Between:
		_, err = tx.Exec(ctx, statements.Get("translate places between rows"), m.p)
	}
	if err != nil {
		return err
	}
	insert := fmt.Sprintf(`INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %[2]s FROM moved_rows AS r WHERE %s`, name, all.List(""), m.refers(t))
	if t.Form == follow.Whole {
		_, err = tx.Exec(ctx, fmt.Sprintf(`DELETE FROM %s AS t WHERE %s; %s`, name, t.Of(m.p), insert))
		return err
	}
	key := all.Of(t.Key)
	if _, err := tx.Exec(ctx, `DROP TABLE IF EXISTS moved_keys; CREATE TEMPORARY TABLE moved_keys (key text[] COLLATE "C") ON COMMIT DROP`); err != nil {
		return err
	}
	if _, err := m.pipe(ctx, changed, "moved_keys", "key"); err != nil {
		return err
	}
	stale := fmt.Sprintf(`DELETE FROM %s AS t USING moved_keys AS k WHERE (%s) = (%s) AND %s`, name, key.List("t."), key.FromKey("k.key"), t.Of(m.p))
	if _, err = tx.Exec(ctx, fmt.Sprintf(stale+` AND NOT EXISTS (SELECT FROM moved_rows AS r WHERE (%s) = (%s))`, key.List("r."), key.List("t."))); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, insert+t.Upsert(all))
	return err
}

// translate finds out which row of the target each stored place is, for places that are
// new. Counted is what the target had of the log when the last places were translated, or
// more.
func (m *mover) translate(ctx context.Context, tx pgx.Tx, counted move, at logread.Cursor) error {
	var place events.Position
	known := map[events.Position]bool{}
	rows, _ := tx.Query(ctx, statements.Get("known places"), m.p)
	if _, err := pgx.ForEachRow(rows, []any{&place.TransactionID, &place.Offset}, func() error {
		known[place] = true
		return nil
	}); err != nil {
		return err
	}
	var early, late [2][]int64
	rows, _ = m.source.conn.Query(ctx, statements.Of(m.p, "stored places"), m.p)
	if _, err := pgx.ForEachRow(rows, []any{&place.TransactionID, &place.Offset}, func() error {
		of := &early
		if counted.copied.Before(place) {
			of = &late
		}
		if !known[place] {
			of[0], of[1] = append(of[0], place.TransactionID), append(of[1], place.Offset)
		}
		return nil
	}); err != nil {
		return fmt.Errorf("read from %s: %w", m.source.Name, err)
	}
	if err := m.addPlaces(ctx, tx, early, move{behind: counted.behind}, at); err != nil {
		return err
	}
	return m.addPlaces(ctx, tx, late, counted, at)
}

// addPlaces counts the rows up to places, all of which are behind a part of the log, to know
// their offsets in the target.
func (m *mover) addPlaces(ctx context.Context, tx pgx.Tx, places [2][]int64, counted move, at logread.Cursor) error {
	if len(places[0]) == 0 {
		return nil
	}
	var found [2][]int64
	var offsets []int64
	var are []bool
	var place events.Position
	var count int64
	var is bool
	pending := at.Pending
	if pending == nil {
		pending = []int64{}
	}
	rows, _ := m.source.conn.Query(ctx, statements.Of(m.p, "count rows"), places[0], places[1], counted.copied.TransactionID, counted.copied.Offset, pending)
	if _, err := pgx.ForEachRow(rows, []any{&place.TransactionID, &place.Offset, &count, &is}, func() error {
		found[0], found[1] = append(found[0], place.TransactionID), append(found[1], place.Offset)
		offsets, are = append(offsets, counted.behind+counted.rows+count), append(are, is)
		return nil
	}); err != nil {
		return fmt.Errorf("count the rows of the log on %s: %w", m.source.Name, err)
	}
	_, err := tx.Exec(ctx, statements.Get("add places"), m.p, found[0], found[1], offsets, are)
	return err
}
