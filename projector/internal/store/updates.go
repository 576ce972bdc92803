package store

import (
	"cmp"
	"maps"
	"slices"

	"github.com/badged/badged/projector/internal/badge"
	"github.com/badged/badged/pubsub"
)

// Updates are published after a commit, users before rooms: the update of a member
// tells more than that of the room.
type Updates struct {
	Users []pubsub.Update
	Rooms []pubsub.RoomUpdate
}

// Len returns how many updates there are.
func (u *Updates) Len() int { return len(u.Users) + len(u.Rooms) }

// ClientUpdates returns what to publish about users and rooms: what changed since
// their rows were read or written. It skips those without subscribers, as most are:
// their apps are closed. origin is the partition of the users before any was split.
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

// visible reports whether a client of u can see a change. That of a membership may
// leave the version to the room's.
func visible(u *badge.User) bool {
	return u.Version != u.Stored || slices.ContainsFunc(u.Changed, (*badge.Conversation).Member)
}

// visibleRoom reports whether a client of a member can see a change.
func visibleRoom(r *badge.Room) bool { return r.Changes != r.StoredChanges }

// changed returns the users and rooms of which clients can see a change since their
// rows were read or written.
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

// PublicBadge returns the badge of a user without memberships, as updates have it: with
// the paths that changed since the rows were read or written, and all levels if any did. It
// shares nothing with the user, who changes while it is published.
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

// Public returns a conversation that is no membership as clients see it.
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

// publicMembership returns a membership as gateways see it.
func publicMembership(c *badge.Conversation, room *pubsub.Room) pubsub.Membership {
	m := c.Membership
	return pubsub.Membership{
		Joined: m.Joined, ReadSeq: c.ReadSeq, ReachedSeq: m.Reached, Level: string(c.Level), LevelUntil: pubsub.TimeOf(c.LevelUntil), MarkedUnread: c.Marked,
		Own: publicSeqs(&m.Own.RangeSet), OwnCounted: m.Own.Counted(), Mentions: c.Mentions.Len() - m.OwnAll.Len(), Named: c.Named(), Room: room,
		SeenSeq: c.SeenSeq, Unseen: c.UnseenBesideRoom(),
	}
}

// publicRoom returns a room as gateways see it, once for all who share it.
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
