package badge

import (
	"fmt"
	"slices"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/remains"
)

// Membership is what a conversation has in addition if it is a room and the user a
// member. With the [Room] it gives the numbers:
//
//   - unread: the room's live messages above ReadSeq, less those in Own;
//   - mentions: the room's live messages above ReadSeq that mention everybody, less
//     those in OwnAll, and those in Mentions of the conversation; at the level
//     direct_mentions those in Mentions and in NamedAll;
//   - version of the user: User.Version + User.Carried + the sum of
//     Room.Changes - Joined over the memberships.
//
// So a message of others changes nothing here.
type Membership struct {
	// Joined is Changes of the room when the user joined.
	Joined int64
	// Own are the user's own messages above ReadSeq, and OwnAll those of them that
	// mention everybody. Mentions of the conversation are the messages above ReadSeq
	// that mention the user by name, without those in Own and those that mention
	// everybody.
	Own, OwnAll BoundedSet
	// NamedAll are the messages above ReadSeq that mention everybody and also the user by
	// name, without those in Own: at the level direct_mentions they are mentions.
	NamedAll BoundedSet
	// Seen is the read position if messages below it were marked unread, else 0. Then
	// ReadSeq is the one before, from which the numbers follow, until a read reaches
	// Seen.
	Seen int64
	// Sent and Named are the last messages that the user sent, and those that mention
	// the user by name, read or not. A mark needs them, since Own and Mentions have
	// none that were read.
	Sent, Named Recent
	// Unmarked are the messages that the user has read. The next write deletes their
	// marks.
	Unmarked []int64
}

// Member reports whether the conversation is a room and the user a member.
func (c *Conversation) Member() bool { return c.Membership != nil }

// join makes u a member of r. Former unread messages go, and a mark stays.
func (u *User) join(r *Room, e *events.Event) bool {
	d, c := &e.Data, u.Conversation(r.ID)
	if c.Member() {
		return false
	}
	r.Admit()
	u.touch(c) // before the level does
	u.Joined = true
	u.add(c, -1)
	upTo := d.UpToSeq
	if upTo == 0 {
		upTo = r.LastSeq
	}
	if c.Left() {
		c.ReadSeq = upTo // former seqs may have been used again
	} else {
		c.ReadSeq = max(c.ReadSeq, upTo)
	}
	if d.Level != "" {
		c.setLevel(d.Level, time.Time{})
	}
	c.LeftSeq, c.Unread, c.Mentions, c.Again, c.Recalled = Never, BoundedSet{}, BoundedSet{}, RangeSet{}, RangeSet{}
	c.Revisions = nil
	c.Membership = &Membership{Joined: r.Changes}
	c.Membership.begin(c.ReadSeq)
	c.Category = r.Category
	c.DeliveredHour = max(c.DeliveredHour, HourOf(e.AppendedAt))
	u.raise(c)
	return true
}

// FoldErased folds what remains of an event of former members, unless it is nil. The
// room is as if they had been there.
func (s *State) FoldErased(e *remains.Members) {
	if e == nil {
		return
	}
	r := s.Room(e.ConversationID)
	r.Touched = true
	if e.Type == events.RoomJoined {
		r.Members += int64(e.Users)
	} else {
		r.Members -= int64(e.Users)
	}
}

// quit ends the membership of u in r: the conversation becomes an ordinary one that
// the user has left.
func (u *User) quit(r *Room) bool {
	c := u.Conversation(r.ID)
	if !c.Member() {
		return false
	}
	u.touch(c) // before anything marks it as touched
	m := c.Membership
	u.Carried += r.Changes - m.Joined
	c.unmark()
	c.moveTo(r.LastSeq)
	for _, seq := range m.Unmarked {
		r.AddMark(seq, u.ID, Mark{Gone: true})
	}
	c.Membership, c.Marked, c.Mentions = nil, false, BoundedSet{}
	c.LastSeq, c.LeftSeq, c.Category = r.LastSeq, r.LastSeq, r.Category
	r.Dismiss()
	u.raise(c)
	return true
}

// moveTo follows a move of the read position. mentions are those of the
// conversation.
func (m *Membership) moveTo(mentions *BoundedSet, seq int64) {
	forget := func(seq int64) { m.Unmarked = append(m.Unmarked, seq) }
	mentions.upTo(seq, forget)
	mentions.RemoveUpTo(seq)
	m.Own.upTo(seq, forget)
	m.Own.RemoveUpTo(seq)
	m.OwnAll.RemoveUpTo(seq)
	m.NamedAll.upTo(seq, forget)
	m.NamedAll.RemoveUpTo(seq)
}

// upTo calls f with every known seq of s up to last.
func (s *BoundedSet) upTo(last int64, f func(int64)) {
	for _, seq := range s.known {
		if seq <= last {
			f(seq)
		}
	}
	for _, r := range s.Ranges {
		for seq := range Seqs(r.Lo, min(r.Hi, last)) {
			f(seq)
		}
	}
}

// lastSeq returns the last message of a conversation.
func (s *State) lastSeq(c *Conversation) int64 {
	if r := s.roomOf(c); r != nil {
		return r.LastSeq
	}
	return c.LastSeq
}

// category returns the category of a conversation.
func (s *State) category(c *Conversation) string {
	if r := s.roomOf(c); r != nil {
		return r.Category
	}
	return c.Category
}

// roomOf returns the room of a membership, nil for another conversation.
func (s *State) roomOf(c *Conversation) *Room {
	if !c.Member() {
		return nil
	}
	return s.Rooms[c.ID]
}

// ViewIn returns what a client can see of c, which is a membership of r. Every
// closed chunk above the read position must be loaded.
func (c *Conversation) ViewIn(r *Room) View {
	m := c.Membership
	live, all := r.LiveAbove(c.ReadSeq)
	v := View{
		// The sets are bounded, so the differences could be negative.
		Unread:   max(0, live-m.Own.Len()),
		Mentions: max(0, all-m.OwnAll.Len()+c.Mentions.Len()),
		ReadSeq:  c.ReadPosition(), LastSeq: r.LastSeq, Level: c.Level, LevelUntil: c.LevelUntil, Category: r.Category, Marked: c.Marked,
	}
	if c.Level == events.LevelDirectMentions {
		v.Mentions = c.Named()
	}
	for v.FirstUnread = range c.UnreadIn(r) {
		break
	}
	return v
}

// Named returns how many unread messages of a membership mention the user by name.
func (c *Conversation) Named() int64 { return c.Mentions.Len() + c.Membership.NamedAll.Len() }

// IsMention reports whether an unread message of a membership mentions the user, at the
// level of the conversation. all is whether it mentions everybody.
func (c *Conversation) IsMention(seq int64, all bool) bool {
	return all && c.Level != events.LevelDirectMentions || c.Mentions.Contains(seq) || c.Membership.NamedAll.Contains(seq)
}

// named returns the set that has a message which mentions the user by name. all is
// whether it mentions everybody, too.
func (c *Conversation) named(all bool) *BoundedSet {
	if all {
		return &c.Membership.NamedAll
	}
	return &c.Mentions
}

// Sums are the numbers of a user that clients see.
type Sums struct {
	Version, Total, Mentions int64
	Categories               CategoryTotals
}

// String returns the numbers for people.
func (s Sums) String() string {
	return fmt.Sprintf("version %d, total %d, mentions %d, categories %s, conversations %d %s",
		s.Version, s.Total, s.Mentions, s.Categories, s.Categories.Conversations(), s.Categories.ConversationsString())
}

// Sums returns the numbers of u with its memberships, of which the rooms and their
// closed chunks above the read positions must be loaded.
func (u *User) Sums(rooms map[string]*Room) Sums {
	s := Sums{u.Version + u.Carried, u.Total, u.Mentions, slices.Clone(u.Categories)}
	for _, c := range u.Conversations {
		if !c.Member() {
			continue
		}
		r := rooms[c.ID]
		v := c.ViewIn(r)
		s.Version += r.Changes - c.Membership.Joined
		if n := v.Adds(); n != 0 {
			s.Total += n
			s.Categories.add(v.Category, n, 1)
		}
		if v.Level != events.LevelNone {
			s.Mentions += v.Mentions
		}
	}
	return s
}
