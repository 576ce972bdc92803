package tests

import (
	"github.com/badged/badged/events"
)

// tally is what the events of a backend come to, worked out with plain sets:
// how many are unread in each room, and how many changes the user could see.
type tally map[string]*tallied

// tallied is one user.
type tallied struct {
	version int64
	rooms   map[string]*room
}

// room is a conversation of one user.
type room struct {
	last, read       int64
	unread, recalled map[int64]bool
}

// count adds events in the order of a log. One whose name came before changes
// nothing.
func (t tally) count(log []events.Event) {
	names := map[string]bool{}
	for _, e := range log {
		if names[e.ID] {
			continue
		}
		names[e.ID] = true
		for _, id := range e.Data.UserIDs {
			if t[id] == nil {
				t[id] = &tallied{rooms: map[string]*room{}}
			}
			t[id].add(e)
		}
	}
}

func (u *tallied) add(e events.Event) {
	d := e.Data
	r := u.rooms[d.ConversationID]
	if r == nil {
		r = &room{unread: map[int64]bool{}, recalled: map[int64]bool{}}
		u.rooms[d.ConversationID] = r
	}
	// An event puts in or takes out, never both: what cannot be seen here is
	// the same as before.
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

// unread returns what a user has unread, by conversation.
func (t tally) unread(user string) (by map[string]int64, sum int64) {
	by = map[string]int64{}
	if u := t[user]; u != nil {
		for id, r := range u.rooms {
			if n := int64(len(r.unread)); n > 0 {
				by[id] = n
				sum += n
			}
		}
	}
	return by, sum
}
