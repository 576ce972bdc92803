package store

import (
	"slices"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/fold/badge"
)

// Missing lists the rows that a batch may need and that the cache does not have.
type Missing struct {
	Users                        []string
	PairUsers, PairConversations []string
	// ReadAll has users; the batch needs all their conversations with something to read. If
	// InRooms is true, the batch also needs all memberships of these users, and their rooms.
	ReadAll []string
	// LeaveAll has the users in ReadAll whose conversations are all needed.
	LeaveAll []string
	InRooms  bool
	// Rooms are the ids of the needed rooms. Some may turn out to be ids of ordinary
	// conversations.
	Rooms []string
	// MessageRooms and MessageSeqs are messages that their room may already have:
	// MessageSeqs[i] is a seq in the room MessageRooms[i]. The batch needs the closed chunk of
	// each message, the marks of the message, and the members of these marks.
	MessageRooms []string
	MessageSeqs  []int64
	// ResetRooms are rooms that the batch resets. The batch needs all their closed chunks and
	// members.
	ResetRooms []string
}

// StateOf returns the state into which items are folded, and the rows that must first be loaded
// into it. The state has cached users and rooms, and new users for the ids that the cache does not
// have. `rooms` is true if the partition has rooms.
func StateOf(items []Item, c *Cache, rooms bool) (*badge.State, Missing) {
	p := preparation{cache: c, state: &badge.State{Users: make(map[string]*badge.User, len(items))}, rooms: rooms}
	for i := 0; !p.rooms && i < len(items); i++ {
		p.rooms = items[i].OfRooms()
	}
	if p.rooms {
		p.state.Rooms, p.requested = map[string]*badge.Room{}, map[string]struct{}{}
	}
	for i := range items {
		p.add(&items[i])
	}
	p.missing.InRooms = p.rooms
	return p.state, p.missing
}

// preparation collects what the items of a batch need, for StateOf.
type preparation struct {
	cache   *Cache
	state   *badge.State
	missing Missing
	rooms   bool
	// readers has the users in Missing.ReadAll. requested has the ids in Missing.Rooms.
	readers, requested map[string]struct{}
}

func (p *preparation) add(item *Item) {
	d := &item.Event.Data
	for i := range item.Erased {
		p.needRoom(item.Erased[i].ConversationID)
	}
	for _, id := range item.Named() {
		u, ok := p.state.Users[id]
		if !ok {
			if u = p.cache.User(id); u == nil {
				u = badge.NewUser(id)
				p.missing.Users = append(p.missing.Users, id)
			}
			p.state.Users[id] = u
		}
		if item.Event.Type.OfConversations() {
			if u.Complete {
				p.needRooms(u)
				continue
			}
			if item.Event.Type == events.UserLeftAll && !slices.Contains(p.missing.LeaveAll, id) {
				p.missing.LeaveAll = append(p.missing.LeaveAll, id)
			}
			if _, ok := p.readers[id]; !ok {
				if p.readers == nil {
					p.readers = map[string]struct{}{}
				}
				p.readers[id] = struct{}{}
				p.missing.ReadAll = append(p.missing.ReadAll, id)
			}
			continue
		}
		conversation, ok := u.Conversations[d.ConversationID]
		if !ok {
			conversation = u.Conversation(d.ConversationID)
		}
		if !ok && !u.Complete {
			p.missing.PairUsers = append(p.missing.PairUsers, id)
			p.missing.PairConversations = append(p.missing.PairConversations, d.ConversationID)
		}
		if p.rooms && (conversation.Member() || !conversation.Stored) { // an unloaded row may be a membership
			p.mayNeedRoom(item)
		}
	}
	switch item.Event.Type {
	case events.RoomPosted, events.RoomChanged, events.RoomRecalled:
		p.needRoom(d.ConversationID)
		if r := p.state.Rooms[d.ConversationID]; r == nil || mayHave(r, d.Seq) {
			p.missing.MessageRooms = append(p.missing.MessageRooms, d.ConversationID)
			p.missing.MessageSeqs = append(p.missing.MessageSeqs, d.Seq)
		}
	case events.RoomReset:
		p.needRoom(d.ConversationID)
		p.missing.ResetRooms = append(p.missing.ResetRooms, d.ConversationID)
	case events.RoomJoined, events.RoomLeft:
		p.needRoom(d.ConversationID)
	}
}

// mayHave reports whether a cached room may already have a message. If so, the chunk and the
// marks of the message must be loaded.
func mayHave(r *badge.Room, seq int64) bool { return seq <= r.Since || r.Open.Live.Contains(seq) }

// mayNeedRoom requests the room of an item whose conversation may be a membership, unless the event
// is of a type that is never folded for members.
func (p *preparation) mayNeedRoom(item *Item) {
	switch item.Event.Type {
	case events.ConversationRead, events.ConversationExpired, events.ConversationMarkedUnread, events.ConversationReset, events.ConversationLevelSet, events.ConversationLevelEnded, events.ConversationSeen:
		p.needRoom(item.Event.Data.ConversationID)
	}
}

// needRooms requests the rooms of all cached memberships of a user.
func (p *preparation) needRooms(u *badge.User) {
	for _, c := range u.Conversations {
		if c.Member() {
			p.needRoom(c.ID)
		}
	}
}

// needRoom adds a room to the state if it is cached; otherwise it adds it to the missing rows.
func (p *preparation) needRoom(id string) {
	if _, ok := p.state.Rooms[id]; ok {
		return
	}
	if _, ok := p.requested[id]; ok {
		return
	}
	if r := p.cache.Room(id); r != nil {
		p.state.Rooms[id] = r
		return
	}
	p.requested[id] = struct{}{}
	p.missing.Rooms = append(p.missing.Rooms, id)
}
