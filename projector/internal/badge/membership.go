package badge

import (
	"fmt"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/category"
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
	// Reached is the read position if messages below it were marked unread, else 0. Then
	// ReadSeq is the one before, from which the numbers follow, until a read reaches
	// Seen.
	Reached int64
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
	before := c.View()
	u.shift(&before, &View{Level: before.Level, Category: before.Category})
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
	c.SeenSeq = 0
	c.LeftSeq, c.Unread, c.Mentions, c.Again, c.Recalled = Never, BoundedSet{}, BoundedSet{}, RangeSet{}, RangeSet{}
	c.Revisions = nil
	c.Membership = &Membership{Joined: r.Changes}
	c.Membership.begin(c.ReadSeq)
	c.Category = r.Category
	c.DeliveredHour = max(c.DeliveredHour, HourOf(e.AppendedAt))
	u.raise(c)
	return true
}

// FoldErased folds what remains of an event of former members. The rooms are as if they
// had been there.
func (s *State) FoldErased(all []remains.Members) {
	for i := range all {
		e := &all[i]
		r := s.Room(e.ConversationID)
		r.Touched = true
		if e.Type == events.RoomJoined {
			r.Members += int64(e.Users)
		} else {
			r.Members -= int64(e.Users)
		}
	}
}

// quit ends the membership of u in r: the conversation becomes an ordinary one that
// the user has left.
func (u *User) quit(r *Room) bool {
	c := u.Conversation(r.ID)
	if !c.Member() {
		return false
	}
	u.endMembership(c, r)
	u.raise(c)
	return true
}

func (u *User) endMembership(c *Conversation, r *Room) {
	u.touch(c) // before anything marks it as touched
	m := c.Membership
	u.Carried += r.Changes - m.Joined
	c.unmark()
	c.moveTo(r.LastSeq)
	for _, seq := range m.Unmarked {
		r.AddMark(seq, u.ID, Mark{Gone: true})
	}
	c.Membership, c.Marked, c.Mentions, c.SeenSeq = nil, false, BoundedSet{}, 0
	c.LastSeq, c.LeftSeq, c.Category = r.LastSeq, r.LastSeq, r.Category
	r.Dismiss()
}

// leaveAll leaves every conversation that a path covers and ends every membership there, as
// one event. Of what was never delivered there is nothing to leave.
func (u *User) leaveAll(path string, in *State) bool {
	var changed []*Conversation
	for _, c := range u.Conversations {
		switch r := in.roomOf(c); {
		case !category.Covers(path, in.category(c)):
		case r != nil:
			u.endMembership(c, r)
			changed = append(changed, c)
		case c.LastSeq > 0 && u.update(c, func(c *Conversation) { c.leave(0) }):
			changed = append(changed, c)
		}
	}
	return u.raiseAll(changed)
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

// ViewIn returns what a client can see of c, which is a membership of r, of a user who has
// set levels. Every closed chunk above the read position must be loaded.
func (c *Conversation) ViewIn(r *Room, levels category.Levels) View {
	m := c.Membership
	v := View{
		ReadSeq: c.ReadPosition(), SeenSeq: c.SeenSeq, LastSeq: r.LastSeq, Level: c.Level, LevelUntil: c.LevelUntil, Category: r.Category, Marked: c.Marked,
	}
	direct := levels.Of(string(c.Level), r.Category) == category.LevelDirectMentions
	// The sets are bounded, so the differences could be negative.
	count := func(above, own, ownAll, mentions, namedAll int64) (int64, int64) {
		live, all := r.LiveAbove(above)
		if direct {
			return max(0, live-own), mentions + namedAll
		}
		return max(0, live-own), max(0, all-ownAll+mentions)
	}
	v.Unread, v.Mentions = count(c.ReadSeq, m.Own.Len(), m.OwnAll.Len(), c.Mentions.Len(), m.NamedAll.Len())
	v.Unseen, v.UnseenMentions = v.Unread, v.Mentions
	if seen := c.SeenPosition(); seen > c.ReadSeq {
		v.Unseen, v.UnseenMentions = count(seen, m.Own.Above(seen), m.OwnAll.Above(seen), c.Mentions.Above(seen), m.NamedAll.Above(seen))
	}
	for v.FirstUnread = range c.UnreadIn(r) {
		break
	}
	return v
}

// Named returns how many unread messages of a membership mention the user by name.
func (c *Conversation) Named() int64 { return c.Mentions.Len() + c.Membership.NamedAll.Len() }

// UnseenBesideRoom returns what a membership counts above its seen position, nil if that is
// its read position: the user's own messages, the mentions without the room's that mention
// everybody, and those by name.
func (c *Conversation) UnseenBesideRoom() *[3]int64 {
	m, seen := c.Membership, c.SeenPosition()
	if seen == c.ReadSeq {
		return nil
	}
	mentions := c.Mentions.Above(seen)
	return &[3]int64{m.Own.Above(seen), mentions - m.OwnAll.Above(seen), mentions + m.NamedAll.Above(seen)}
}

// IsMention reports whether an unread message of a membership mentions the user, at the
// level that applies. all is whether it mentions everybody.
func (c *Conversation) IsMention(seq int64, all bool, level string) bool {
	return all && level != category.LevelDirectMentions || c.Mentions.Contains(seq) || c.Membership.NamedAll.Contains(seq)
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
	Version int64
	category.Numbers
	Categories map[string]category.Numbers
	Levels     category.Levels
}

// String returns the numbers for people, in a fixed order.
func (s Sums) String() string {
	return fmt.Sprintf("version %d, %+v, categories %+v, levels %v", s.Version, s.Numbers, s.Categories, s.Levels)
}

// Sums returns the numbers of u with its memberships, of which the rooms and their
// closed chunks above the read positions must be loaded, as all paths.
func (u *User) Sums(rooms map[string]*Room) Sums {
	s := Sums{u.Version + u.Carried, u.Numbers, u.Paths.ByName(), u.Paths.Levels}
	for _, c := range u.Conversations {
		if !c.Member() {
			continue
		}
		r := rooms[c.ID]
		v := c.ViewIn(r, s.Levels)
		s.Version += r.Changes - c.Membership.Joined
		if n := v.Adds(s.Levels); n != (category.Numbers{}) {
			s.Add(n)
			category.AddTo(s.Categories, r.Category, n)
		}
	}
	return s
}
