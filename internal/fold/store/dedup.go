package store

import (
	"context"
	"fmt"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/fold/keys"
	"github.com/badged/badged/internal/pg/query"
)

// An event counts once for each user, even if it is published several times with different
// lists of users. To find repetitions, each event key is stored with its users, in
// generations. A batch adds the keys of its events to the youngest generation, and looks them
// up in all probed generations. A generation begins at a position of the log. The transaction
// that begins it stores this position, so a replay finds the same repetitions as the projector
// did, whatever the clocks and settings are now.

// WindowSpans is the minimum number of spans for which an event key is found; a span is the time
// between the starts of two generations. It is one less than keys.ProbedGenerations, since a
// key may be stored just before its generation ends.
const WindowSpans = keys.ProbedGenerations - 1

// Generation is the number of a generation of event keys, and the position at which it begins.
type Generation struct {
	Number int
	// After is the position of the last event before the generation.
	After events.Position
}

// LoadGenerations returns all generations that a partition has had, in order. They determine
// which events in the log of the partition are repetitions.
func LoadGenerations(ctx context.Context, q events.Querier, partition int) ([]Generation, error) {
	var all []Generation
	var g Generation
	what := fmt.Sprintf("read the generations of event keys of partition %d", partition)
	err := query.Each(ctx, q, what, statements.Get("read the generations"), []any{partition}, []any{&g.Number, &g.After.TransactionID, &g.After.Offset}, func() error {
		all = append(all, g)
		return nil
	})
	return all, err
}

// fresh removes from an event the users who have had it. It reports whether anything is left
// to fold: users, a message to a room, or joins and leaves of erased members.
func fresh(item *Item, check *keys.Check) bool {
	repeated := 0
	for i := range item.Event.Data.UserIDs {
		if check.Has(item.entry(i)) {
			repeated++
		}
	}
	switch repeated {
	case 0:
	case len(item.Event.Data.UserIDs):
		item.Users, item.Event.Data.UserIDs = "", nil
		return item.Erased != nil
	default:
		item.leave(func(i int) bool { return !check.Has(item.entry(i)) })
	}
	return true
}

// remember adds an entry for each user of an event, to be stored with the batch.
func remember(item *Item, check *keys.Check) {
	for i := range item.Event.Data.UserIDs {
		check.Add(item.entry(i))
	}
}
