package replay

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/fold/store"
)

// MembershipChange identifies an event that made a user join or leave a room. The place alone does
// not identify the event: after a log was renumbered, an archived event and an event of the log may
// have the same place.
type MembershipChange struct {
	events.Place
	AppendedAt time.Time
}

// ChangeAt returns the MembershipChange that identifies a record.
func ChangeAt(r *events.Record) MembershipChange {
	return MembershipChange{r.Place, r.AppendedAt.UTC()}
}

// MembershipChanges returns the events that made a user become, or cease to be, a member of
// rooms. It maps each event to the ids of these rooms. It omits events without effect, such as
// repetitions, and joins of a user who is a member already. It reads the archive, if the snapshot
// has one, and the log from the baseline up to the position of snapshot.
func (snapshot *Snapshot) MembershipChanges(ctx context.Context, userID string) (map[MembershipChange][]string, error) {
	r := snapshot.newReplay(func(id string) bool { return id == userID }, nil)
	if err := snapshot.restoreUsers(ctx, r, []string{userID}, func() {}); err != nil {
		return nil, err
	}
	changes := map[MembershipChange][]string{}
	err := snapshot.eachOf(ctx, []string{userID}, r, func(rec *events.Record, item store.Item, dead error) error {
		if dead != nil {
			return nil
		}
		rooms := []string{item.Event.Data.ConversationID}
		if item.Event.Type == events.UserLeftAll {
			rooms = r.roomsOf(userID)
		}
		before := make([]bool, len(rooms))
		for i, room := range rooms {
			before[i] = r.isMember(userID, room)
		}
		r.fold(rec.Place, &item)
		for i, room := range rooms {
			if r.isMember(userID, room) != before[i] {
				changes[ChangeAt(rec)] = append(changes[ChangeAt(rec)], strings.Clone(room))
			}
		}
		return nil
	})
	return changes, err
}

// roomsOf returns the sorted ids of the rooms of which a replayed user is a member.
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

// isMember reports whether a replayed user is a member of a room.
func (r *Replay) isMember(userID, room string) bool {
	u := r.Users[userID]
	if u == nil {
		return false
	}
	c, ok := u.Conversations[room]
	return ok && c.Member()
}
