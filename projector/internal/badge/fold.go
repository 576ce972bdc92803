// Package badge is the fold, which defines the numbers. It turns the state of
// a user and an event into the next state, and holds the sets that the state
// is made of. It is pure: no clock, no I/O, no dependence on map order. An
// event carries its own time.
//
// Deliveries, reads and recalls commute and are idempotent: a union, a maximum
// and a union. A read by an app commutes within the minute that it reaches
// ahead. The other types apply in log order, and a read ends a mark in that
// order. Folding events one by one or by the thousand gives the same state and
// the same versions.
//
// It does not know tables, clocks or networks. ADR 5 says what does not depend on order,
// ADR 37 how sets stay bounded, ADR 33 how far an app reads.
package badge

import (
	"strings"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/category"
)

// User is the state of one user: the badge, and the conversations that the
// current events need.
type User struct {
	ID string
	// Version, the numbers and those by path do not count what memberships of rooms add
	// to them: see [Membership].
	Version int64
	category.Numbers
	Paths Paths
	// Carried is what the rooms that the user has left add to the version that
	// clients see.
	Carried int64
	// Joined is set if the user is or has been a member of a room. Readers look for
	// memberships only then.
	Joined bool
	// Claims are the reads by the user's apps that are ahead of the log.
	Claims Claims
	// Claimed is set if Claims changed since the row was read or written.
	Claimed bool
	// Conversations are by conversation id.
	Conversations map[string]*Conversation
	// Complete is set if these are all that have a row.
	Complete bool
	// Changed are the conversations touched since the rows were last read or
	// written.
	Changed []*Conversation
	// Stored is the version in the row, 0 if there is none, and StoredCarried what is
	// carried there. HasRow reports whether there is a row: one that holds only claims
	// has version 0 too.
	Stored, StoredCarried int64
	HasRow                bool
	// ChangedAt is when the first event that changed the version since then
	// was appended, in microseconds since 1970; 0 if none did.
	ChangedAt int64
	// Weight is roughly how many bytes the user takes in a cache; ranges is
	// the number of ranges in it.
	Weight, ranges int
}

// Rough memory use of the state, in bytes.
const (
	UserWeight         = 300
	ConversationWeight = 400
	RangeWeight        = 24
	ClaimWeight        = 150
	PathWeight         = 120
)

// Never is the LeftSeq of a user who has not left; every LastSeq is above it.
const Never = -1

// NewUser returns a user without a row or conversations.
func NewUser(id string) *User {
	id = strings.Clone(id) // a substring would keep a whole event in memory
	return &User{ID: id, Conversations: map[string]*Conversation{}}
}

// Conversation returns the state of a conversation, a new one if there is
// none.
func (u *User) Conversation(id string) *Conversation {
	c, ok := u.Conversations[id]
	if !ok {
		c = &Conversation{ID: id, Category: events.DefaultCategory, Level: events.LevelDefault, LeftSeq: Never}
		c.Unread.Ranges = c.first[:0]
		u.Conversations[id] = c
	}
	return c
}

// Apply folds the effect of e on u, one of its users; mentioned reports
// whether e mentions u. It reports whether a client of u can see a difference;
// if so, u's version has grown by one. Events of many conversations require every one with
// something to read to be loaded, UserLeftAll every one, and all of them every membership.
// The paths that cover the categories of what changes must be loaded. in has the rooms
// that e names or u is a member of.
func (u *User) Apply(e *events.Event, mentioned bool, in *State) bool {
	changed := u.apply(e, mentioned, in)
	u.Paths.place()
	return changed
}

func (u *User) apply(e *events.Event, mentioned bool, in *State) bool {
	d := &e.Data
	switch e.Type {
	case events.MessageDelivered, events.MessageChanged:
		if d.SenderID == u.ID {
			return false // a user's own message does not count
		}
		u.lapse(e.AppendedAt)
		return u.change(d.ConversationID, func(c *Conversation) {
			c.moveTo(max(u.Claims.Reach(c.ID, d.Seq), min(c.LeftSeq, d.Seq)))
			c.deliver(e, mentioned)
			c.refresh(e.AppendedAt)
		})
	case events.ConversationRead:
		if d.ByApp {
			u.lapse(e.AppendedAt)
			u.claim(d, e.AppendedAt)
			return u.change(d.ConversationID, func(c *Conversation) { c.readDelivered(d.UpToSeq, in.lastSeq(c)) })
		}
		return u.change(d.ConversationID, func(c *Conversation) { c.read(d.UpToSeq) })
	case events.ConversationExpired:
		return u.change(d.ConversationID, func(c *Conversation) { c.readDelivered(d.UpToSeq, in.lastSeq(c)) })
	case events.MessageRecalled:
		return u.change(d.ConversationID, func(c *Conversation) { c.recall(d.Seq, d.Revision) })
	case events.ConversationMarkedUnread:
		if d.FromSeq > 0 && u.Conversation(d.ConversationID).Member() {
			return u.markFrom(in.Room(d.ConversationID), d.FromSeq, e.AppendedAt)
		}
		return u.change(d.ConversationID, func(c *Conversation) {
			if len(d.Seqs) > 0 {
				c.markMessages(d.Seqs)
			} else {
				c.markUnread(in.category(c))
			}
			if c.isMarked() {
				c.refresh(e.AppendedAt)
			}
		})
	case events.ConversationReset:
		return u.reset(e, in)
	case events.ConversationLevelSet:
		return u.change(d.ConversationID, func(c *Conversation) { c.setLevel(d.Level, d.Until) })
	case events.ConversationLevelEnded:
		return u.change(d.ConversationID, func(c *Conversation) { c.endLevel(d.Until) })
	case events.ConversationLeft:
		return u.change(d.ConversationID, func(c *Conversation) { c.leave(d.UpToSeq) })
	case events.ConversationSeen:
		return u.change(d.ConversationID, func(c *Conversation) {
			if d.ByApp {
				c.see(min(d.UpToSeq, in.lastSeq(c)))
			} else {
				c.see(d.UpToSeq)
			}
		})
	case events.UserReadAll:
		return u.changeAll(d.Category, in, func(c *Conversation) { c.readAll(in.lastSeq(c)) })
	case events.UserSeenAll:
		return u.changeAll(d.Category, in, func(c *Conversation) { c.see(in.lastSeq(c)) })
	case events.UserLeftAll:
		return u.leaveAll(d.Category, in)
	case events.CategoryLevelSet:
		return u.setLevel(d)
	case events.RoomJoined:
		return u.join(in.Room(d.ConversationID), e)
	case events.RoomLeft:
		return u.quit(in.Room(d.ConversationID))
	}
	return false
}

// change applies f to one conversation as one event.
func (u *User) change(conversationID string, f func(*Conversation)) bool {
	c := u.Conversation(conversationID)
	if !u.update(c, f) {
		return false
	}
	u.raise(c)
	return true
}

// raise raises the version of u for a change of c.
func (u *User) raise(c *Conversation) {
	u.Version++
	c.Version = u.Version
}

// changeAll applies f to every conversation that a path covers, or to all if it is empty,
// as one event.
func (u *User) changeAll(path string, in *State, f func(*Conversation)) bool {
	var changed []*Conversation
	for _, c := range u.Conversations {
		if path != "" && !category.Covers(path, in.category(c)) {
			continue
		}
		if u.update(c, f) {
			changed = append(changed, c)
		}
	}
	return u.raiseAll(changed)
}

// raiseAll raises the version of u for a change of several conversations, if there are any.
func (u *User) raiseAll(changed []*Conversation) bool {
	if len(changed) == 0 {
		return false
	}
	u.Version++
	for _, c := range changed {
		c.Version = u.Version
	}
	return true
}

// lapse drops the claims that had ended when an event was appended.
func (u *User) lapse(at time.Time) {
	n := len(u.Claims)
	u.Claims.Lapse(at.UnixMicro())
	u.Claimed = u.Claimed || len(u.Claims) < n
}

// claim records the part of an app's read beyond the last delivered message. There
// are no claims of rooms: a post would have to look for them.
func (u *User) claim(d *events.Data, at time.Time) {
	if c := u.Conversation(d.ConversationID); c.Member() || d.UpToSeq <= c.LastSeq {
		return
	}
	added := u.Claims.Add(Claim{Conversation: strings.Clone(d.ConversationID), UpTo: d.UpToSeq, Until: at.Add(ClaimSpan).UnixMicro()})
	u.Claimed = u.Claimed || added
}

// Exists reports whether u has a row: it has a version or a claim. The row of
// a user with only claims never has to be deleted: the next delivery or claim
// lets them lapse.
func (u *User) Exists() bool { return u.Version > 0 || len(u.Claims) > 0 }

// update applies f to c, carries the difference over to the sums, and reports
// whether a client can see it.
func (u *User) update(c *Conversation, f func(*Conversation)) bool {
	before, listed := c.View(), c.Touched
	member := c.Member()
	f(c)
	after := c.View()
	if !member {
		u.shift(&before, &after)
	}
	if c.Touched && !listed {
		u.Changed = append(u.Changed, c)
	}
	return after != before
}

// shift carries a change of a conversation over to the sums.
func (u *User) shift(before, after *View) {
	was, is := before.Adds(u.Paths.Levels), after.Adds(u.Paths.Levels)
	if was == is && before.Category == after.Category {
		return
	}
	difference := is.Minus(was)
	u.Add(difference)
	if before.Category == after.Category {
		u.Paths.add(after.Category, difference)
		return
	}
	u.Paths.add(before.Category, category.Numbers{}.Minus(was))
	u.Paths.add(after.Category, is)
}

// touch lists c as changed.
func (u *User) touch(c *Conversation) {
	if !c.Touched {
		c.Touched = true
		u.Changed = append(u.Changed, c)
	}
}

// Settle records that the rows were written as u is now.
func (u *User) Settle() {
	for _, c := range u.Changed {
		c.Touched, c.Stored = false, true
		n := len(c.Unread.Ranges) + len(c.Mentions.Ranges) + len(c.Again.Ranges) + len(c.Recalled.Ranges) + len(c.Revisions)
		if m := c.Membership; m != nil {
			n += len(m.Own.Ranges) + len(m.OwnAll.Ranges) + len(m.NamedAll.Ranges) + len(m.Sent.Ranges) + len(m.Named.Ranges)
			m.Unmarked = nil
		}
		u.ranges += n - int(c.Weighed)
		c.Weighed = int32(n) //nolint:gosec // at most seven times MaxRanges
	}
	u.Changed = u.Changed[:0]
	u.Paths.settle()
	u.Stored, u.StoredCarried, u.HasRow, u.Claimed, u.ChangedAt = u.Version, u.Carried, u.Exists(), false, 0
	u.Weight = UserWeight + ClaimWeight*len(u.Claims) + ConversationWeight*len(u.Conversations) + RangeWeight*u.ranges + PathWeight*u.Paths.loaded()
}
