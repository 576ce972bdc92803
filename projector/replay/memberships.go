package replay

import (
	"context"
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

// MembershipChanges returns the events that joined a user to a room or took the user out
// of it: not repeats, and not joins of a member. They are in the log up to the position,
// from the baseline on, or in the archive too if there is one.
func (in *Snapshot) MembershipChanges(ctx context.Context, userID string) (map[MembershipChange]struct{}, error) {
	r := in.newReplay(func(id string) bool { return id == userID }, nil)
	if err := in.restoreUsers(ctx, r, []string{userID}, func() {}); err != nil {
		return nil, err
	}
	changes := map[MembershipChange]struct{}{}
	err := in.eachOf(ctx, []string{userID}, r, func(rec *events.Record, it store.Item, dead error) error {
		if dead != nil {
			return nil
		}
		room := it.Event.Data.ConversationID
		before := r.isMember(userID, room)
		r.fold(rec.Place, &it)
		if r.isMember(userID, room) != before {
			changes[ChangeAt(rec)] = struct{}{}
		}
		return nil
	})
	return changes, err
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
