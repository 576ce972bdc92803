package store

import (
	"cmp"
	"maps"
	"slices"

	"github.com/badged/badged/internal/fold/badge"
	"github.com/badged/badged/pubsub"
)

// Updates has the updates to publish after a commit. Users is published before Rooms. If an event
// changes a room and one of its members, the member's update, which has more information than the
// room's, thus arrives first.
type Updates struct {
	Users []pubsub.Update
	Rooms []pubsub.RoomUpdate
}

// Len returns the number of updates of users and rooms.
func (u *Updates) Len() int { return len(u.Users) + len(u.Rooms) }

// ClientUpdates returns the updates to publish for the changes of users and rooms since their
// rows were last read or written. It skips users and rooms without subscribers: the apps of
// most users are closed. origin is the partition to which the users belonged before any split.
func ClientUpdates(users []*badge.User, rooms map[string]*badge.Room, partition, origin int, epoch string, hasSubscribers func(pubsub.Address) bool) (updates Updates) {
	public := map[string]*pubsub.Room{}
	for _, u := range users {
		if !visible(u) || !hasSubscribers(pubsub.Address{ID: u.ID, Partition: origin}) {
			continue
		}
		update := pubsub.Update{
			Badge:       PublicBadge(u, epoch),
			Partition:   origin,
			BaseVersion: u.Stored + u.StoredCarried,
			AppendedAt:  u.ChangedAt,
		}
		update.Conversations = make([]pubsub.Conversation, 0, len(u.Changed))
		for _, c := range u.Changed {
			switch {
			case c.Member() && rooms[c.ID] != nil:
				update.Memberships = append(update.Memberships, publicMembership(c, publicRoom(rooms[c.ID], public)))
			case c.Version > u.Stored:
				changed := Public(c)
				changed.Version += u.Carried
				update.Conversations = append(update.Conversations, changed)
			}
		}
		slices.SortFunc(update.Conversations, func(a, b pubsub.Conversation) int {
			return cmp.Or(cmp.Compare(b.Version, a.Version), cmp.Compare(a.ConversationID, b.ConversationID))
		})
		updates.Users = append(updates.Users, update)
	}
	for _, r := range Sorted(rooms) {
		if !visibleRoom(r) || !hasSubscribers(pubsub.Address{ID: r.ID, Partition: partition, Room: true}) {
			continue
		}
		updates.Rooms = append(updates.Rooms, pubsub.RoomUpdate{
			Room: *publicRoom(r, public), Epoch: epoch, Partition: partition, BaseChanges: r.StoredChanges, AppendedAt: r.ChangedAt,
		})
	}
	return updates
}

// visible reports whether a client of u may see a change. It is not enough to compare the
// version of u: if a message changes both a room and a membership of u, only the change of the
// room raises the versions of the members.
func visible(u *badge.User) bool {
	return u.Version != u.Stored || slices.ContainsFunc(u.Changed, (*badge.Conversation).Member)
}

// visibleRoom reports whether clients of members can see a change.
func visibleRoom(r *badge.Room) bool { return r.Changes != r.StoredChanges }

// changed returns the ids of the users and rooms in which clients can see a change since their
// rows were last read or written.
func changed(touched []*badge.User, all map[string]*badge.Room) (users, rooms []string) {
	for _, u := range touched {
		if visible(u) {
			users = append(users, u.ID)
		}
	}
	for id, r := range all {
		if visibleRoom(r) {
			rooms = append(rooms, id)
		}
	}
	return users, rooms
}

// PublicBadge returns the badge of u in the form of updates, without the numbers of
// memberships. It has only the paths that changed since their rows were last read or written.
// If any level changed, it has all levels; otherwise it has none. The badge shares no memory
// with u, since u may change while the badge is published.
func PublicBadge(u *badge.User, epoch string) pubsub.Badge {
	b := pubsub.Badge{
		UserID: u.ID, Epoch: epoch, Version: u.Version + u.Carried, Numbers: u.Numbers,
		Categories: make(map[string]pubsub.Numbers, len(u.Paths.Touched)),
	}
	for _, p := range u.Paths.Touched {
		b.Categories[p.Name], _ = u.Paths.Current(p)
	}
	if u.Paths.Moved {
		b.Levels = make(map[string]string, len(u.Paths.Levels))
		maps.Copy(b.Levels, u.Paths.Levels)
	}
	return b
}

// Public returns a conversation as clients see it. c must not be a membership.
func Public(c *badge.Conversation) pubsub.Conversation {
	unseen, unseenMentions := c.Unseen()
	return pubsub.Conversation{
		ConversationID: c.ID,
		Unread:         c.Count(),
		Mentions:       c.Mentions.Len(),
		FirstUnreadSeq: c.First(),
		ReadSeq:        c.ReadSeq,
		LastSeq:        c.LastSeq,
		Level:          string(c.Level),
		LevelUntil:     pubsub.TimeOf(c.LevelUntil),
		Category:       c.Category,
		MarkedUnread:   c.Marked,
		Left:           c.ShowsLeft(),
		Version:        c.Version,
		SeenSeq:        c.SeenSeq,
		Seen:           c.Count() - unseen,
		SeenMentions:   c.Mentions.Len() - unseenMentions,
	}
}

// publicMembership returns a membership in the form for gateways.
func publicMembership(c *badge.Conversation, room *pubsub.Room) pubsub.Membership {
	m := c.Membership
	return pubsub.Membership{
		Joined: m.Joined, ReadSeq: c.ReadSeq, ReachedSeq: m.Reached, Level: string(c.Level), LevelUntil: pubsub.TimeOf(c.LevelUntil), MarkedUnread: c.Marked,
		Own: publicSeqs(&m.Own.RangeSet), OwnCounted: m.Own.Counted(), Mentions: c.Mentions.Len() - m.OwnAll.Len(), Named: c.Named(), Room: room,
		SeenSeq: c.SeenSeq, Unseen: c.UnseenCorrection(),
	}
}

// publicRoom returns a room in the form for gateways. known caches the results by room id, so
// that the updates of several members share one result.
func publicRoom(r *badge.Room, known map[string]*pubsub.Room) *pubsub.Room {
	if p, ok := known[r.ID]; ok {
		return p
	}
	p := &pubsub.Room{
		ConversationID: r.ID, Changes: r.Changes, LastSeq: r.LastSeq, Category: r.Category, Since: r.Since,
		Live: publicSeqs(&r.Open.Live), All: publicSeqs(&r.Open.All),
		ClosedLive: r.ClosedLive, ClosedAll: r.ClosedAll, ClosedChanges: r.ClosedChanges,
	}
	known[r.ID] = p
	return p
}

func publicSeqs(s *badge.RangeSet) pubsub.Seqs {
	seqs := make(pubsub.Seqs, len(s.Ranges))
	for i, r := range s.Ranges {
		seqs[i] = pubsub.SeqRange{First: r.Lo, Last: r.Hi}
	}
	return seqs
}
