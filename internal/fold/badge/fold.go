// Package badge contains the fold: the function that computes a user's next state from the
// state and an event, and so defines every number of a badge. It also holds the sets of
// message numbers (seqs) that make up the state. The fold is pure: it uses no clock and no
// I/O, and does not depend on the order of maps. Each event carries its own time.
//
// Deliveries, reads, recalls and leaves of a conversation commute and are idempotent, since each is
// a union or a maximum. Changes with a revision number also commute and are idempotent. A read by
// an app commutes only within the minute in which it may be ahead of the log (see readahead.go).
// The effect of the other event types depends on the order of the log. Whether a read ends a mark
// depends on this order too. Folding events one by one or in batches gives the same state and the
// same versions.
//
// The package does not know tables or networks. ADR 5 lists what does not depend on order, ADR
// 37 explains how sets stay bounded, and ADR 33 explains how far a read by an app reaches.
package badge

import (
	"strings"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/category"
)

// User is the state of one user: the badge, and the conversations of the user that the current
// events need.
type User struct {
	ID string
	// Version, Numbers and Paths exclude what memberships of rooms add: see [Membership].
	Version int64
	category.Numbers
	Paths Paths
	// Carried counts the changes of rooms that the user has left, from the join to the leave. It is
	// a part of the version that clients see: see [Membership].
	Carried int64
	// Joined is true if the user is or was a member of a room. Otherwise readers do not look
	// for memberships.
	Joined bool
	// ReadsAhead are the parts of reads by the user's apps that are ahead of the log.
	ReadsAhead ReadsAhead
	// ReadsAheadChanged is true if ReadsAhead changed since the user's row was last read or
	// written.
	ReadsAheadChanged bool
	// Conversations maps conversation ids to their states.
	Conversations map[string]*Conversation
	// Complete is true if Conversations has every conversation that has a row.
	Complete bool
	// Changed lists the conversations changed since their rows were last read or written.
	Changed []*Conversation
	// Stored and StoredCarried are the values of Version and Carried in the user's row, 0 without a
	// row. HasRow reports whether the row exists: Stored does not show this, since a row that has
	// only reads ahead has version 0.
	Stored, StoredCarried int64
	HasRow                bool
	// ChangedAt is the append time, in microseconds since 1970, of the first event that raised
	// the version since the row was last read or written; 0 if no event did.
	ChangedAt int64
	// Weight is the user's approximate memory use in the cache, in bytes. ranges is the number
	// of ranges that Weight includes.
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

// Never is the LeftSeq of a user who has not left. It is below every LastSeq.
const Never = -1

// NewUser returns a user without a row or conversations.
func NewUser(id string) *User {
	id = strings.Clone(id) // a substring would keep a whole event in memory
	return &User{ID: id, Conversations: map[string]*Conversation{}}
}

// Conversation returns the state of a conversation. It creates the state if there is none.
func (u *User) Conversation(id string) *Conversation {
	c, ok := u.Conversations[id]
	if !ok {
		c = &Conversation{ID: id, Category: events.DefaultCategory, Level: events.LevelDefault, LeftSeq: Never}
		c.Unread.Ranges = c.first[:0]
		u.Conversations[id] = c
	}
	return c
}

// Apply folds e into u, which must be one of the users of e. mentioned is whether e mentions
// u. state must have the room that e names, and the rooms in which u is a member.
//
// changed reports whether a client of u can see a difference; if so, the version of u has
// grown by one. reason is the reason why no count changed; it has no meaning if a count changed.
//
// Before the call, load into u the rows of all paths (categories) that cover a conversation that
// e changes. For an event about many conversations, also load every membership, and every
// conversation with something to read; for UserLeftAll, load every conversation.
func (u *User) Apply(e *events.Event, mentioned bool, state *State) (changed bool, reason Reason) {
	changed, reason = u.apply(e, mentioned, state)
	u.Paths.place()
	return changed, reason
}

func (u *User) apply(e *events.Event, mentioned bool, state *State) (changed bool, reason Reason) {
	d := &e.Data
	switch e.Type {
	case events.MessageDelivered, events.MessageChanged:
		if d.SenderID == u.ID {
			return false, ownMessage
		}
		u.lapse(e.AppendedAt)
		return u.change(d.ConversationID, func(c *Conversation) Reason {
			read := c.ReadSeq
			c.moveTo(max(u.ReadsAhead.Reach(c.ID, d.Seq), min(c.LeftSeq, d.Seq)))
			reason := c.deliver(e, mentioned)
			if reason == alreadyRead && d.Seq > read { // read because of a read ahead or a leave
				if reason = leftFurther; d.Seq > c.LeftSeq {
					reason = readAhead
				}
			}
			c.refresh(e.AppendedAt)
			return reason
		})
	case events.ConversationRead:
		if d.ByApp {
			u.lapse(e.AppendedAt)
			u.addReadAhead(d, e.AppendedAt)
			return u.change(d.ConversationID, func(c *Conversation) Reason { return c.readDelivered(d.UpToSeq, state.lastSeq(c)) })
		}
		return u.change(d.ConversationID, func(c *Conversation) Reason { return c.read(d.UpToSeq) })
	case events.ConversationExpired:
		return u.change(d.ConversationID, func(c *Conversation) Reason { return c.readDelivered(d.UpToSeq, state.lastSeq(c)) })
	case events.MessageRecalled:
		return u.change(d.ConversationID, func(c *Conversation) Reason { return c.recall(d.Seq, d.Revision) })
	case events.ConversationMarkedUnread:
		if d.FromSeq > 0 && u.Conversation(d.ConversationID).Member() {
			return u.markFrom(state.Room(d.ConversationID), d.FromSeq, e.AppendedAt)
		}
		return u.change(d.ConversationID, func(c *Conversation) (reason Reason) {
			if len(d.Seqs) > 0 {
				reason = c.markMessages(d.Seqs)
			} else {
				reason = c.markUnread(state.category(c))
			}
			if c.isMarked() {
				c.refresh(e.AppendedAt)
			}
			return reason
		})
	case events.ConversationReset:
		return u.reset(e, state)
	case events.ConversationLevelSet:
		return u.change(d.ConversationID, func(c *Conversation) Reason { return c.setLevel(d.Level, d.Until) })
	case events.ConversationLevelEnded:
		return u.change(d.ConversationID, func(c *Conversation) Reason { return c.endLevel(d.Until) })
	case events.ConversationLeft:
		return u.change(d.ConversationID, func(c *Conversation) Reason { return c.leave(d.UpToSeq) })
	case events.ConversationSeen:
		return u.change(d.ConversationID, func(c *Conversation) Reason {
			if d.ByApp {
				return c.see(min(d.UpToSeq, state.lastSeq(c)))
			}
			return c.see(d.UpToSeq)
		})
	case events.UserReadAll:
		return u.changeAll(d.Category, state, func(c *Conversation) Reason { return c.readAll(state.lastSeq(c)) }), nothingUnread
	case events.UserSeenAll:
		return u.changeAll(d.Category, state, func(c *Conversation) Reason { return c.see(state.lastSeq(c)) }), allSame
	case events.UserLeftAll:
		return u.leaveAll(d.Category, state), allSame
	case events.CategoryLevelSet:
		return u.setLevel(d)
	case events.RoomJoined:
		return u.join(state.Room(d.ConversationID), e)
	case events.RoomLeft:
		return u.quit(state.Room(d.ConversationID))
	}
	return false, none
}

// change applies f to one conversation, and raises the version of u by one if a client can see
// a difference.
func (u *User) change(conversationID string, f func(*Conversation) Reason) (changed bool, reason Reason) {
	c := u.Conversation(conversationID)
	if changed, reason = u.update(c, f); changed {
		u.raise(c)
	}
	return changed, reason
}

// raise raises the version of u because c changed.
func (u *User) raise(c *Conversation) {
	u.Version++
	c.Version = u.Version
}

// changeAll applies f to every conversation that path covers, or to all conversations if path
// is empty. It raises the version of u by one if a client can see a difference in any of them.
func (u *User) changeAll(path string, state *State, f func(*Conversation) Reason) bool {
	var changed []*Conversation
	for _, c := range u.Conversations {
		if path != "" && !category.Covers(path, state.category(c)) {
			continue
		}
		if visible, _ := u.update(c, f); visible {
			changed = append(changed, c)
		}
	}
	return u.raiseAll(changed)
}

// raiseAll raises the version of u by one for all changed conversations, if there are any.
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

// lapse removes the reads ahead of u that ended before `now`, the append time of the event that is
// folded now.
func (u *User) lapse(now time.Time) {
	n := len(u.ReadsAhead)
	u.ReadsAhead.Lapse(now.UnixMicro())
	u.ReadsAheadChanged = u.ReadsAheadChanged || len(u.ReadsAhead) < n
}

// addReadAhead stores a read ahead: the part of an app's read that is above the last delivered
// message. It stores none for a room, since each message to the room would have to look up the
// reads ahead of all members.
func (u *User) addReadAhead(d *events.Data, appendedAt time.Time) {
	if c := u.Conversation(d.ConversationID); c.Member() || d.UpToSeq <= c.LastSeq {
		return
	}
	added := u.ReadsAhead.Add(ReadAhead{Conversation: strings.Clone(d.ConversationID), UpTo: d.UpToSeq, Until: appendedAt.Add(ReadAheadSpan).UnixMicro()})
	u.ReadsAheadChanged = u.ReadsAheadChanged || added
}

// Exists reports whether u has a row or needs one, because it has a version or a read ahead. When
// the reads ahead of a user without a version end, the row is not deleted; the next delivery or
// read by an app removes these reads ahead.
func (u *User) Exists() bool { return u.Version > 0 || len(u.ReadsAhead) > 0 }

// update applies f to c, and adds the change of c's numbers to the numbers of u. It reports
// whether a client can see a difference, and returns the result of f.
func (u *User) update(c *Conversation, f func(*Conversation) Reason) (changed bool, reason Reason) {
	before, listed := c.View(), c.Touched
	member := c.Member()
	reason = f(c)
	after := c.View()
	if !member {
		u.shift(&before, &after)
	}
	if c.Touched && !listed {
		u.Changed = append(u.Changed, c)
	}
	return after != before, reason
}

// shift adds the difference between two views of one conversation to the numbers of u.
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

// touch adds c to the list of changed conversations.
func (u *User) touch(c *Conversation) {
	if !c.Touched {
		c.Touched = true
		u.Changed = append(u.Changed, c)
	}
}

// Settle marks the state of u as equal to its rows, after a write. It also computes Weight.
func (u *User) Settle() {
	for _, c := range u.Changed {
		c.Touched, c.Stored = false, true
		n := len(c.Unread.Ranges) + len(c.Mentions.Ranges) + len(c.MarkedUnread.Ranges) + len(c.Recalled.Ranges) + len(c.Revisions)
		if m := c.Membership; m != nil {
			n += len(m.Own.Ranges) + len(m.OwnAll.Ranges) + len(m.NamedAll.Ranges) + len(m.Sent.Ranges) + len(m.Named.Ranges)
			m.Unmarked = nil
		}
		u.ranges += n - int(c.Weighed)
		c.Weighed = int32(n) //nolint:gosec // at most seven times MaxRanges
	}
	u.Changed = u.Changed[:0]
	u.Paths.settle()
	u.Stored, u.StoredCarried, u.HasRow, u.ReadsAheadChanged, u.ChangedAt = u.Version, u.Carried, u.Exists(), false, 0
	u.Weight = UserWeight + ClaimWeight*len(u.ReadsAhead) + ConversationWeight*len(u.Conversations) + RangeWeight*u.ranges + PathWeight*u.Paths.loaded()
}
