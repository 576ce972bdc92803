package replay

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/internal/store"
)

// MembershipChange is an event by which a user became a member of a room, or ceased to
// be one. After a log was renumbered, events of the archive and of the log may have the
// same place, but not the same time too.
type MembershipChange struct {
	events.Place
	AppendedAt time.Time
}

// ChangeAt returns what would be the change of a record.
func ChangeAt(r *events.Record) MembershipChange {
	return MembershipChange{r.Place, r.AppendedAt.UTC()}
}

// MembershipChanges returns the events that joined a user to rooms or took the user out
// of them, with these rooms: not repeats, and not joins of a member. They are in the log up to the position,
// from the baseline on, or in the archive too if there is one.
func (in *Snapshot) MembershipChanges(ctx context.Context, userID string) (map[MembershipChange][]string, error) {
	r := in.newReplay(func(id string) bool { return id == userID }, nil)
	if err := in.restoreUsers(ctx, r, []string{userID}, func() {}); err != nil {
		return nil, err
	}
	changes := map[MembershipChange][]string{}
	err := in.eachOf(ctx, []string{userID}, r, func(rec *events.Record, it store.Item, dead error) error {
		if dead != nil {
			return nil
		}
		rooms := []string{it.Event.Data.ConversationID}
		if it.Event.Type == events.UserLeftAll {
			rooms = r.roomsOf(userID)
		}
		before := make([]bool, len(rooms))
		for i, room := range rooms {
			before[i] = r.isMember(userID, room)
		}
		r.fold(rec.Place, &it)
		for i, room := range rooms {
			if r.isMember(userID, room) != before[i] {
				changes[ChangeAt(rec)] = append(changes[ChangeAt(rec)], strings.Clone(room))
			}
		}
		return nil
	})
	return changes, err
}

// roomsOf returns the rooms of which a user that is replayed is a member, in their order.
func (r *Replay) roomsOf(userID string) (rooms []string) {
	if u := r.Users[userID]; u != nil {
		for id, c := range u.Conversations {
			if c.Member() {
				rooms = append(rooms, id)
			}
		}
	}
	slices.Sort(rooms)
	return rooms
}

// isMember reports whether a user that is replayed is a member of a room.
func (r *Replay) isMember(userID, room string) bool {
	u := r.Users[userID]
	if u == nil {
		return false
	}
	c, ok := u.Conversations[room]
	return ok && c.Member()
}
