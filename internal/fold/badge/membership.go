package badge

import (
	"cmp"
	"fmt"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/category"
	"github.com/badged/badged/internal/log/tombstones"
)

// Membership is the additional state of a conversation that is a room of which the user is a
// member. Three numbers that a client sees are computed from the membership and its [Room]:
//
//   - unread: the room's live messages above ReadSeq, less the messages in Own;
//   - mentions: the room's live messages above ReadSeq that mention everybody, less OwnAll,
//     plus Mentions of the conversation. At the level direct_mentions: Mentions plus NamedAll;
//   - version of the user: User.Version + User.Carried + the sum of
//     Room.Changes - Joined over the memberships.
//
// So a message by another member, unless it mentions the user by name, changes no membership.
type Membership struct {
	// Joined is Room.Changes at the time when the user joined.
	Joined int64
	// Own has the messages above ReadSeq that the user sent. OwnAll has the messages in Own
	// that mention everybody. The field Mentions of the conversation has the messages above
	// ReadSeq that mention the user by name, except messages in Own and messages that mention
	// everybody.
	Own, OwnAll BoundedSet
	// NamedAll has the messages above ReadSeq that mention both everybody and the user by
	// name, except messages in Own. It is used at the level direct_mentions, at which mentions
	// of everybody do not count.
	NamedAll BoundedSet
	// Reached is the read position that clients see while messages at or below it are marked
	// unread; otherwise Reached is 0. While Reached is set, ReadSeq is lower, and the numbers
	// are computed from ReadSeq. A read at or above Reached ends the mark.
	Reached int64
	// Sent has the last messages that the user sent, read or not. Named has the last messages that
	// mention the user by name, read or not, except messages that were recalled while they were
	// unread. When messages are marked unread, both lists show which of them to add to Own and
	// Mentions, which have unread messages only.
	Sent, Named Recent
	// Unmarked lists messages that the user has read since the rows were last written. The
	// next write deletes the user's marks at these messages (see [Mark]).
	Unmarked []int64
}

// Member reports whether the conversation is a room and the user is a member.
func (c *Conversation) Member() bool { return c.Membership != nil }

// join makes u a member of r. It discards the unread messages that the conversation had before
// the join. A mark of the conversation as a whole remains.
func (u *User) join(r *Room, e *events.Event) (changed bool, reason Reason) {
	d, c := &e.Data, u.Conversation(r.ID)
	if c.Member() {
		return false, alreadyMember
	}
	r.Admit()
	u.touch(c) // before setLevel sets Touched
	u.Joined = true
	before := c.View()
	u.shift(&before, &View{Level: before.Level, Category: before.Category})
	upTo := cmp.Or(d.UpToSeq, r.LastSeq)
	if c.Left() {
		c.ReadSeq = upTo // a reset after the user left may have reused seqs
	} else {
		c.ReadSeq = max(c.ReadSeq, upTo)
	}
	if d.Level != "" {
		c.setLevel(d.Level, time.Time{})
	}
	c.SeenSeq = 0
	c.LeftSeq, c.Unread, c.Mentions, c.MarkedUnread, c.Recalled = Never, BoundedSet{}, BoundedSet{}, RangeSet{}, RangeSet{}
	c.Revisions = nil
	c.Membership = &Membership{Joined: r.Changes}
	c.Membership.begin(c.ReadSeq)
	c.Category = r.Category
	c.DeliveredHour = max(c.DeliveredHour, HourOf(e.AppendedAt))
	u.raise(c)
	return true, none
}

// FoldErased folds the joins and leaves of users who were erased from the log. It changes the
// rooms' numbers of members as the original events did, and nothing else.
func (s *State) FoldErased(all []tombstones.Members) {
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

// quit ends the membership of u in r. The conversation becomes an ordinary conversation that
// the user has left.
func (u *User) quit(r *Room) (changed bool, reason Reason) {
	c := u.Conversation(r.ID)
	if !c.Member() {
		return false, noMember
	}
	u.endMembership(c, r)
	u.raise(c)
	return true, none
}

func (u *User) endMembership(c *Conversation, r *Room) {
	u.touch(c) // first, since it does nothing if c is already touched
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

// leaveAll folds user.left_all. u leaves every room that path covers, and every ordinary
// conversation that path covers and that a client may know. Conversations without messages are
// included, since they may be marked unread or have a level. The version of u grows by at most one.
func (u *User) leaveAll(path string, state *State) bool {
	var changed []*Conversation
	for _, c := range u.Conversations {
		switch r := state.roomOf(c); {
		case !category.Covers(path, state.category(c)):
		case r != nil:
			u.endMembership(c, r)
			changed = append(changed, c)
		case c.Version > 0:
			if visible, _ := u.update(c, func(c *Conversation) Reason { return c.leave(0) }); visible {
				changed = append(changed, c)
			}
		}
	}
	return u.raiseAll(changed)
}

// moveTo removes the messages up to seq, the new read position, from the sets of the membership,
// and from `mentions`, the set Mentions of the membership's conversation. It adds the removed
// messages to Unmarked.
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

// upTo calls f with every stored seq of s up to `last`. Of its bulk, a [BoundedSet] stores only a
// few seqs.
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

// lastSeq returns the seq of the last message of a conversation or room.
func (s *State) lastSeq(c *Conversation) int64 {
	if r := s.roomOf(c); r != nil {
		return r.LastSeq
	}
	return c.LastSeq
}

func (s *State) category(c *Conversation) string {
	if r := s.roomOf(c); r != nil {
		return r.Category
	}
	return c.Category
}

// roomOf returns the room of c if c is a membership, else nil.
func (s *State) roomOf(c *Conversation) *Room {
	if !c.Member() {
		return nil
	}
	return s.Rooms[c.ID]
}

// ViewIn returns what a client can see of c, a membership of r. levels are the levels that the
// user has set for categories. Every closed chunk of r above the read position must be loaded.
func (c *Conversation) ViewIn(r *Room, levels category.Levels) View {
	m := c.Membership
	v := View{
		ReadSeq: c.ReadPosition(), SeenSeq: c.SeenSeq, LastSeq: r.LastSeq, Level: c.Level, LevelUntil: c.LevelUntil, Category: r.Category, Marked: c.Marked,
	}
	direct := levels.Of(string(c.Level), r.Category) == category.LevelDirectMentions
	// A set with a bulk is approximate, so the differences could be negative.
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

// UnseenCorrection returns three counts of messages of a room above the member's seen position.
// Readers combine them with counts of the room to get the numbers that the member sees. The first
// counts the member's own messages: it is subtracted from the room's messages. The second is added
// to the room's messages that mention everybody, to get the mentions; it may be negative. The third
// counts messages that mention the member by name. The result is nil if the seen position equals
// ReadSeq.
func (c *Conversation) UnseenCorrection() *[3]int64 {
	m, seen := c.Membership, c.SeenPosition()
	if seen == c.ReadSeq {
		return nil
	}
	mentions := c.Mentions.Above(seen)
	return &[3]int64{m.Own.Above(seen), mentions - m.OwnAll.Above(seen), mentions + m.NamedAll.Above(seen)}
}

// IsMention reports whether an unread message of a membership counts as a mention at the given
// level. `all` is whether the message mentions everybody: such a mention does not count at the
// level direct_mentions.
func (c *Conversation) IsMention(seq int64, all bool, level string) bool {
	return all && level != category.LevelDirectMentions || c.Mentions.Contains(seq) || c.Membership.NamedAll.Contains(seq)
}

// named returns the set that stores mentions of the user by name: one set for messages that
// also mention everybody (all), another set for messages that do not.
func (c *Conversation) named(all bool) *BoundedSet {
	if all {
		return &c.Membership.NamedAll
	}
	return &c.Mentions
}

// Sums are the version, numbers and levels of a user as clients see them.
type Sums struct {
	Version int64
	category.Numbers
	Categories map[string]category.Numbers
	Levels     category.Levels
}

// String returns the sums as text for logs and test failures, in a fixed order.
func (s Sums) String() string {
	return fmt.Sprintf("version %d, %+v, categories %+v, levels %v", s.Version, s.Numbers, s.Categories, s.Levels)
}

// Sums returns the numbers of u, including what its memberships in rooms add. The caller must have
// loaded all paths of u, the rooms, and those closed chunks of the rooms that have messages above
// the read position of u (see [Chunk]).
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
