package tests

import "github.com/badged/badged/events"

// tally computes the result of a backend's events with plain sets: the unread
// count of each room, and the number of visible changes.
type tally map[string]*tallied

// tallied is one user.
type tallied struct {
	version int64
	rooms   map[string]*room
	// halls are the unread counts where the user is a member.
	halls map[string]int64
}

// room is a conversation of one user.
type room struct {
	last, read       int64
	unread, recalled map[int64]bool
}

// count adds the events of a partition in the order of its log. A repeated event
// changes nothing.
func (t tally) count(log []events.Event) {
	names := map[string]bool{}
	halls := roomTally{}
	for _, e := range log {
		if names[e.ID] {
			continue
		}
		names[e.ID] = true
		if halls[e.Data.ConversationID] != nil || e.Type.OfRooms() {
			halls.add(e)
			continue
		}
		for _, id := range e.Data.UserIDs {
			t.user(id).add(e)
		}
	}
	for name, hall := range halls {
		for id := range hall.versions {
			t.user(id).version += hall.version(id)
		}
		for id := range hall.members {
			t.user(id).halls[name] = hall.count(id).Unread
		}
	}
}

func (t tally) user(id string) *tallied {
	if t[id] == nil {
		t[id] = &tallied{rooms: map[string]*room{}, halls: map[string]int64{}}
	}
	return t[id]
}

func (u *tallied) add(e events.Event) {
	d := e.Data
	r := u.rooms[d.ConversationID]
	if r == nil {
		r = &room{unread: map[int64]bool{}, recalled: map[int64]bool{}}
		u.rooms[d.ConversationID] = r
	}
	// An event either only adds or only removes elements, so equal sizes mean an unchanged
	// state.
	seen := func() [3]int64 { return [3]int64{r.last, r.read, int64(len(r.unread))} }
	before := seen()
	switch e.Type {
	case events.MessageDelivered:
		r.last = max(r.last, d.Seq)
		if d.Seq > r.read && !r.recalled[d.Seq] {
			r.unread[d.Seq] = true
		}
	case events.MessageRecalled:
		r.recalled[d.Seq] = true
		delete(r.unread, d.Seq)
	case events.ConversationRead:
		r.read = max(r.read, d.UpToSeq)
		for seq := range r.unread {
			if seq <= r.read {
				delete(r.unread, seq)
			}
		}
	default:
		panic("a backend does not publish " + e.Type)
	}
	if seen() != before {
		u.version++
	}
}

// unread returns a user's unread counts by conversation, and their sum.
func (t tally) unread(user string) (by map[string]int64, sum int64) {
	by = map[string]int64{}
	if u := t[user]; u != nil {
		for id, r := range u.rooms {
			if n := int64(len(r.unread)); n > 0 {
				by[id] = n
				sum += n
			}
		}
		for id, n := range u.halls {
			if n > 0 {
				by[id] = n
				sum += n
			}
		}
	}
	return by, sum
}
