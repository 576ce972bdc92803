package badge

import (
	"slices"
	"strings"

	"github.com/badged/badged/events"
)

// reset folds conversation.reset: it sets a conversation of u to the state that e gives. It
// also removes the reads ahead of the conversation, since their seqs refer to messages before the
// reset.
func (u *User) reset(e *events.Event, state *State) (changed bool, reason Reason) {
	d := &e.Data
	n := len(u.ReadsAhead)
	u.ReadsAhead = slices.DeleteFunc(u.ReadsAhead, func(c ReadAhead) bool { return c.Conversation == d.ConversationID })
	u.ReadsAheadChanged = u.ReadsAheadChanged || len(u.ReadsAhead) < n
	if c := u.Conversation(d.ConversationID); c.Member() {
		return u.resetMember(state.Room(c.ID), c, e)
	}
	return u.change(d.ConversationID, func(c *Conversation) Reason {
		c.reset(d.UpToSeq, d.Seqs)
		if c.Count() > 0 {
			c.refresh(e.AppendedAt)
		}
		return sameState
	})
}

// reset marks c as read up to upTo, and then the messages in seqs as unread. It deletes
// everything else that is stored about messages, since after the reset a seq may identify
// another message. If the user has left the conversation and seqs is empty, the user still
// counts as having left.
func (c *Conversation) reset(upTo int64, seqs []int64) {
	last, leftSeq := slices.Max(append([]int64{upTo}, seqs...)), int64(Never)
	if c.Left() && len(seqs) == 0 {
		leftSeq = upTo
	}
	if c.ReadSeq != upTo || c.LastSeq != last || c.LeftSeq != leftSeq || c.Count() > 0 || len(seqs) > 0 || len(c.Recalled.Ranges) > 0 || len(c.Revisions) > 0 || c.SeenSeq > 0 {
		c.Touched = true
	}
	c.ReadSeq, c.SeenSeq, c.LastSeq, c.LeftSeq = upTo, 0, last, leftSeq
	c.Unread, c.Mentions, c.MarkedUnread, c.Recalled = BoundedSet{}, BoundedSet{}, RangeSet{}, RangeSet{}
	c.Revisions = nil
	for _, seq := range seqs {
		if seq > upTo {
			c.Unread.Add(seq)
		} else {
			c.MarkedUnread.Add(seq)
		}
	}
}

// resetMember folds conversation.reset for a member of a room: it moves the read position to
// UpToSeq of e. All later messages become unread, except messages in Sent of the membership, which
// the member sent. It also forgets Reached, the read position before markFrom lowered it.
func (u *User) resetMember(r *Room, c *Conversation, e *events.Event) (changed bool, reason Reason) {
	m, upTo := c.Membership, e.Data.UpToSeq
	if upTo == c.ReadSeq && m.Reached == 0 && c.SeenSeq == 0 {
		return false, sameState
	}
	u.touch(c)
	m.Reached, c.SeenSeq = 0, 0
	if upTo < c.ReadSeq {
		if bound := m.Sent.Min(); upTo < bound {
			m.Sent.Remove(bound)
			m.begin(upTo)
		}
		u.moveBack(r, c, upTo, e.AppendedAt)
	} else {
		c.ReadSeq = upTo
		m.moveTo(&c.Mentions, upTo)
	}
	u.raise(c)
	return true, none
}

// Leap describes an event whose seq is far above the last seq of its conversation.
type Leap struct {
	ConversationID string
	Last, Seq      int64
}

// leapFactor decides which seqs are reported as leaps: a seq of at least leapFactor times the
// last seq of its conversation. The publisher has then probably changed the unit of its seqs,
// such as from milliseconds to microseconds.
const leapFactor = 1000

// watch counts e as a leap if its seq is far above the last seq. Such a seq is suspicious: after a
// user has read up to it, later messages with lower seqs do not count. If e names several users,
// watch checks only the conversation of the first user.
func (s *State) watch(e *events.Event) {
	d := &e.Data
	var seq, last int64
	switch e.Type {
	case events.MessageDelivered, events.ConversationRead, events.ConversationLeft:
		if len(d.UserIDs) == 0 || d.ByApp {
			return
		}
		if c, ok := s.Users[d.UserIDs[0]].Conversations[d.ConversationID]; ok {
			seq, last = max(d.Seq, d.UpToSeq), s.lastSeq(c)
		}
	case events.RoomPosted, events.RoomJoined:
		if r, ok := s.Rooms[d.ConversationID]; ok {
			seq, last = max(d.Seq, d.UpToSeq), r.LastSeq
		}
	}
	if last == 0 || seq/leapFactor < last {
		return
	}
	if s.Leaps == 0 {
		s.FirstLeap = Leap{strings.Clone(d.ConversationID), last, seq}
	}
	s.Leaps++
}
