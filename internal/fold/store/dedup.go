package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/fold/keys"
)

// An event counts once for each user, even if it is published several times, with different
// lists of users. To that end, event keys are stored with their users in generations. A batch
// adds the keys of its events to the youngest generation, and looks for repetitions in all
// probed generations. The transaction that begins a generation stores the position of the log
// at which it begins. So a replay decides on every repetition as the projector did, whatever
// the clocks and settings are now.

// WindowSpans is the least number of generation spans for which an event key is found. It is
// one less than the probed generations, since the generation that stored the key may be about
// to end.
const WindowSpans = keys.ProbedGenerations - 1

// Generation is a generation of event keys, and the place in the log where it begins.
type Generation struct {
	Number int
	// After is the position before the first event of the generation.
	After events.Position
}

// LoadGenerations returns every generation that a partition ever had, in order. They determine
// which events in its log count as repetitions.
func LoadGenerations(ctx context.Context, q events.Querier, partition int) ([]Generation, error) {
	rows, err := q.Query(ctx, statements.Get("read the generations"), partition)
	if err != nil {
		return nil, fmt.Errorf("read the generations of event keys of partition %d: %w", partition, err)
	}
	generations, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (g Generation, err error) {
		err = row.Scan(&g.Number, &g.After.TransactionID, &g.After.Offset)
		return g, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the generations of event keys of partition %d: %w", partition, err)
	}
	return generations, nil
}

// fresh removes from an event the users who have had it, and reports whether any remain.
// Messages to rooms have no users and always remain.
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

// remember adds the event keys of an event, one for each of its users.
func remember(it *Item, check *keys.Check) {
	for i := range it.Event.Data.UserIDs {
		check.Add(it.entry(i))
	}
}
