package moving

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/fold/logread"
	"github.com/badged/badged/internal/partition"
	"github.com/badged/badged/internal/partition/copier"
	"github.com/badged/badged/internal/pg/query"
)

// Staged implements copier.Operation. If the changed rows contain places in the source's log, it
// replaces these places by the corresponding places in the target's log.
func (m *mover) Staged(ctx context.Context, tx pgx.Tx, t partition.Table, _ copier.Part, _ string) (err error) {
	switch t.Places {
	case partition.OfRow:
		_, err = tx.Exec(ctx, statements.Get("translate places of rows"), m.p)
	case partition.Between:
		_, err = tx.Exec(ctx, statements.Get("translate places between rows"), m.p)
	}
	return err
}

// withPlaces replaces PLACES in a statement by a query for all places in the log that the
// partition's tables store. A place consists of a transaction id and an offset.
func (m *mover) withPlaces(sql string) string {
	return strings.ReplaceAll(sql, "PLACES", partition.PlacesSQL(fmt.Sprint(m.p)))
}

// translate finds the places in the log that the source's tables store. For each of these places it
// stores the corresponding place in the target's log, unless the place was translated before.
func (m *mover) translate(ctx context.Context, tx pgx.Tx, cursor logread.Cursor) error {
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
	if err := query.Each(ctx, m.source.Conn, "read from "+m.source.Name, m.withPlaces(statements.Of(m.p, "stored places")), nil, []any{&place.TransactionID, &place.Offset}, func() error {
		of := &early
		if m.counted.copied.Before(place) {
			of = &late
		}
		if !known[place] {
			of[0], of[1] = append(of[0], place.TransactionID), append(of[1], place.Offset)
		}
		return nil
	}); err != nil {
		return err
	}
	if err := m.addPlaces(ctx, tx, early, move{baseOffset: m.counted.baseOffset}, cursor); err != nil {
		return err
	}
	if err := m.addPlaces(ctx, tx, late, m.counted, cursor); err != nil {
		return err
	}
	m.counted = m.target.move // remains valid if the transaction fails, since it counts rows of the source
	return nil
}

// addPlaces stores the offsets that places of the source get in the target. The target numbers the
// copied rows in their order, beginning after counted.baseOffset. So the offset of a place is the
// number of the source's rows up to the place, plus counted.baseOffset. addPlaces counts only the
// rows after the position counted.copied, and adds counted.rows, the number of rows up to that
// position. So no place may be before counted.copied.
func (m *mover) addPlaces(ctx context.Context, tx pgx.Tx, places [2][]int64, counted move, cursor logread.Cursor) error {
	if len(places[0]) == 0 {
		return nil
	}
	var found [2][]int64
	var offsets []int64
	var are []bool
	var place events.Position
	var count int64
	var is bool
	args := []any{places[0], places[1], counted.copied.TransactionID, counted.copied.Offset, cursor.PendingArg()}
	if err := query.Each(ctx, m.source.Conn, "count the rows of the log on "+m.source.Name, statements.Of(m.p, "count rows"), args, []any{&place.TransactionID, &place.Offset, &count, &is}, func() error {
		found[0], found[1] = append(found[0], place.TransactionID), append(found[1], place.Offset)
		offsets, are = append(offsets, counted.baseOffset+counted.rows+count), append(are, is)
		return nil
	}); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, statements.Get("add places"), m.p, found[0], found[1], offsets, are)
	return err
}
