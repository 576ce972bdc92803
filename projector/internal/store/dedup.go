package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/internal/keys"
)

// Which users have had an event is remembered in generations, so that an event
// counts once for each user, however often it comes and with whatever other
// users. A batch adds what it folds to the youngest generation; all probed
// generations detect duplicates. A generation begins at a position of the log, in
// the transaction of the batch that follows it, so a replay decides on every
// duplicate as the projector did, whatever the clocks and settings are now.

// WindowSpans is the least number of generation spans for which an event is
// remembered: the generation that took it may be about to end.
const WindowSpans = keys.ProbedGenerations - 1

// Generation is the place in the log where a generation begins.
type Generation struct {
	Number int
	// After is the position before its first event.
	After events.Position
}

// LoadGenerations returns every generation that a partition ever had, in
// order: they tell how each duplicate in its log was decided.
func LoadGenerations(ctx context.Context, q events.Querier, partition int) ([]Generation, error) {
	rows, err := q.Query(ctx, statements.Get("read the generations"), partition)
	if err != nil {
		return nil, fmt.Errorf("read the generations of keys of partition %d: %w", partition, err)
	}
	generations, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (g Generation, err error) {
		err = row.Scan(&g.Number, &g.After.TransactionID, &g.After.Offset)
		return g, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the generations of keys of partition %d: %w", partition, err)
	}
	return generations, nil
}

// fresh leaves an event only the users who have not had it, and reports whether
// there are any. A message to a room has no users, and is never repeated.
func fresh(it *Item, check *keys.Check) bool {
	repeated := 0
	for i := range it.Event.Data.UserIDs {
		if check.Has(it.entry(i)) {
			repeated++
		}
	}
	switch repeated {
	case 0:
	case len(it.Event.Data.UserIDs):
		it.Users, it.Event.Data.UserIDs = "", nil
		return it.Erased != nil
	default:
		it.leave(func(i int) bool { return !check.Has(it.entry(i)) })
	}
	return true
}

// remember records that the users of an event have had it.
func remember(it *Item, check *keys.Check) {
	for i := range it.Event.Data.UserIDs {
		check.Add(it.entry(i))
	}
}
