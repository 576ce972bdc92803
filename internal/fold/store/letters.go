package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/pg/query"
)

// Letters has the places of dead letters, and the places of former dead letters that were
// retried or discarded. A replay skips the events at these places, even if the present release
// could decode them. The zero value has no places.
type Letters struct {
	buried map[events.Place]struct{}
	// refused has the places of events that were folded for some of their users only. The
	// values are the users for which the event was not folded, in ascending order.
	refused map[events.Place][]string
}

// LoadLetters reads the places of the dead letters of a partition from the first position to the
// last, both inclusive.
func LoadLetters(ctx context.Context, q events.Querier, partition int, first, last events.Position) (Letters, error) {
	return loadLetters(ctx, q, statements.Get("read the dead letters of a part of the log"), partition, first.TransactionID, first.Offset, last.TransactionID, last.Offset)
}

// LoadLettersOf reads the places of the dead letters of some rows of the log of a partition. The
// positions of the rows are given as their transaction ids and their offsets.
func LoadLettersOf(ctx context.Context, q events.Querier, partition int, ids, offsets []int64) (Letters, error) {
	return loadLetters(ctx, q, statements.Get("read the dead letters of some rows"), partition, ids, offsets)
}

func loadLetters(ctx context.Context, q events.Querier, sql string, partition int, args ...any) (l Letters, err error) {
	var p events.Place
	var users []string
	what := fmt.Sprintf("read the dead letters of partition %d", partition)
	err = query.Each(ctx, q, what, sql, append([]any{partition}, args...), []any{&p.TransactionID, &p.Offset, &p.Index, &users}, func() error {
		if users == nil {
			l.Bury(p)
		} else {
			l.refuse(p, users)
		}
		return nil
	})
	return l, err
}

// Bury adds the place of an event that is folded for no user.
func (l *Letters) Bury(p events.Place) {
	if l.buried == nil {
		l.buried = map[events.Place]struct{}{}
	}
	l.buried[p] = struct{}{}
}

// refuse adds the place of an event and users for which it is not folded.
func (l *Letters) refuse(p events.Place, users []string) {
	if l.refused == nil {
		l.refused = map[events.Place][]string{}
	}
	all := slices.Concat(l.refused[p], users)
	slices.Sort(all)
	l.refused[p] = slices.Compact(all)
}

// Buried reports whether the event at a place is folded for no user.
func (l *Letters) Buried(p events.Place) bool {
	_, is := l.buried[p]
	return is
}

// ErrBuried means that an event is not folded because it became a dead letter.
var ErrBuried = errors.New("the event became a dead letter")

// Item decodes a record as [NewItem] does, and removes the users for which the event is a dead
// letter. The error is ErrBuried if the event can be decoded but is a dead letter for all
// users.
func (l *Letters) Item(r *events.Record, partition, partitions int) (Item, error) {
	item, err := NewItem(r, partition, partitions)
	switch {
	case err != nil:
		return item, err
	case l.Buried(r.Place):
		return Item{}, ErrBuried
	}
	if users, ok := l.refused[r.Place]; ok {
		item.Drop(users)
	}
	return item, nil
}
