// Package logview reads the events of the log and filters them, to show them to operators.
//
// It does not know the fold.
package logview

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/category"
	"github.com/badged/badged/internal/fold/logread"
	"github.com/badged/badged/internal/log/tombstones"
	"github.com/badged/badged/internal/pg/query"
)

// Filter selects the events of a View. The zero Filter selects all events.
type Filter struct {
	// Partitions are the partitions to read; nil means all. If User is set, only the partition
	// of the user is read, and Partitions is ignored.
	Partitions []int
	// User, if not empty, selects events that name this user, and messages to rooms in which
	// the user is a member. Conversation, if not empty, selects the events of this
	// conversation. If User, Conversation or PublishedBy is set, events that cannot be
	// decoded are not selected.
	User, Conversation string
	// PublishedBy, if not empty, selects events that were published with the key of this name.
	PublishedBy string
	// Since and Until, if not zero, limit the time of appending; both are inclusive.
	Since, Until time.Time
}

// wants reports whether the filter selects an event.
func (v *View) wants(r *events.Record) bool {
	f := &v.filter
	inTime := !r.AppendedAt.Before(f.Since) && (f.Until.IsZero() || !r.AppendedAt.After(f.Until))
	if f.User == "" && (f.Conversation == "" && f.PublishedBy == "" || !inTime) {
		return inTime
	}
	e, err := events.Decode(tombstones.EventIn(r.Payload))
	return err == nil && (f.User == "" || v.concerns(&e)) && inTime &&
		(f.Conversation == "" || e.Data.ConversationID == f.Conversation) &&
		(f.PublishedBy == "" || r.Own && e.PublishedBy == f.PublishedBy)
}

// concerns reports whether an event names the user of the filter, or is a message to a room in
// which the user is a member. If the event is a join or leave of the user, concerns updates
// v.rooms; if it is a message to a room, concerns updates v.categories.
func (v *View) concerns(e *events.Event) bool {
	room := e.Data.ConversationID
	if known := v.categories[room]; e.Type == events.RoomPosted && e.Data.Seq >= known.seq {
		v.categories[room] = posted{e.Data.Seq, cmp.Or(e.Data.Category, known.category)}
	}
	if !slices.Contains(e.Data.UserIDs, v.filter.User) {
		_, member := v.rooms[room]
		return member && e.Type.ToRoom()
	}
	switch e.Type {
	case events.RoomJoined, events.RoomLeft, events.UserLeftAll:
	default:
		return true
	}
	key := e.Key()
	if _, repeated := v.seenKeys[key]; repeated {
		return true
	}
	v.seenKeys[key] = struct{}{}
	switch e.Type {
	case events.RoomJoined:
		v.rooms[room] = struct{}{}
	case events.RoomLeft:
		delete(v.rooms, room)
	case events.UserLeftAll:
		maps.DeleteFunc(v.rooms, func(room string, _ struct{}) bool {
			return category.Covers(e.Data.Category, v.categories[room].category)
		})
	}
	return true
}

// loadRooms reads the rooms of the baseline: the last seq and the category of each room, and
// in which rooms the user is a member.
func (v *View) loadRooms(ctx context.Context) error {
	v.rooms, v.categories, v.seenKeys = map[string]struct{}{}, map[string]posted{}, map[uuid.UUID]struct{}{}
	sql := fmt.Sprintf(`SELECT r.conversation_id, r.last_seq, r.category, c.joined IS NOT NULL
FROM badged.rooms_p%02[1]d_baseline AS r
LEFT JOIN badged.conversations_p%02[1]d_baseline AS c ON c.user_id = $1 AND c.conversation_id = r.conversation_id`,
		v.filter.Partitions[0])
	var (
		room   string
		last   posted
		member bool
	)
	what := fmt.Sprintf("read the rooms of user %q", v.filter.User)
	return query.Each(ctx, v.q, what, sql, []any{v.filter.User}, []any{&room, &last.seq, &last.category, &member}, func() error {
		if v.categories[room] = last; member {
			v.rooms[room] = struct{}{}
		}
		return nil
	})
}

// View reads each folded event once, in the order of folding. It omits events that are not folded
// yet, since folding may still change their places. It is not safe for concurrent use.
type View struct {
	q         events.Querier
	filter    Filter
	positions map[int]events.Position
	// rooms has the rooms in which the filter's user is a member; nil before the first read.
	// seenKeys has the event keys of the user's joins and leaves that were read, since a repetition
	// of such an event must not change rooms.
	rooms    map[string]struct{}
	seenKeys map[uuid.UUID]struct{}
	// categories has the category of each room, by which a user.left_all selects the rooms
	// that the user leaves.
	categories map[string]posted
}

// posted has the highest seq of a room, and the category of the last message that has a
// category.
type posted struct {
	seq      int64
	category string
}

// New returns a view of a log from its start, read through q.
func New(q events.Querier, log *events.Log, f Filter) *View {
	if f.User != "" {
		f.Partitions = []int{log.PartitionOf(f.User)}
	}
	if f.Partitions == nil {
		f.Partitions = log.Layout().Living()
	}
	return &View{q: q, filter: f, positions: map[int]events.Position{}}
}

// The size of a page.
const (
	pageEvents = 5000
	pageBytes  = 8 << 20
)

// Next calls visit with each selected event that was folded since the last call, one partition
// after the other. The first call reads the log from its start. visit must not retain the record.
func (v *View) Next(ctx context.Context, visit func(partition int, r *events.Record) error) error {
	if v.filter.User != "" && v.rooms == nil {
		if err := v.loadRooms(ctx); err != nil {
			return err
		}
	}
	for _, p := range v.filter.Partitions {
		end, err := logread.Load(ctx, v.q, p, "")
		if err != nil {
			return err
		}
		size := logread.Size{Events: pageEvents, Bytes: pageBytes}
		for v.positions[p].Before(end.Position) {
			records, err := logread.Folded(ctx, v.q, p, v.positions[p], end, &size)
			if err != nil {
				return err
			}
			for i := range records {
				if !v.wants(&records[i]) {
					continue
				}
				if err := visit(p, &records[i]); err != nil {
					return fmt.Errorf("show %s of partition %d: %w", records[i].Place, p, err)
				}
			}
			v.positions[p] = end.Position
			if len(records) > 0 {
				v.positions[p] = records[len(records)-1].Position
			}
		}
	}
	return nil
}
