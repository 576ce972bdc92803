package badge

import (
	"iter"
	"math"
	"slices"
	"time"
)

// maxRecent limits the lists Sent and Named of a membership. So if a user marks the messages of a
// room from a seq on as unread, messages that are older than the lists remain read: see the method
// known.
const maxRecent = 64

// Recent has the greatest seqs of a set. Its content is the same for every order in which seqs
// are added.
type Recent struct{ RangeSet }

// remember adds a message and reports whether it was new. It stores at most maxRecent+1 seqs.
// If it stores that many, messages below the least stored seq may have been dropped.
func (r *Recent) remember(seq int64) bool {
	if r.Len() > maxRecent && seq <= r.Min() || !r.Add(seq) {
		return false
	}
	if r.Len() > maxRecent+1 {
		r.RemoveUpTo(r.Min())
	}
	return true
}

// begin records that Sent has no messages at or below seq. It adds seq itself to Sent as a
// bound. It is called when the user joins the room, and when a reset of the room or of the
// membership makes earlier messages unknown; seq is then the position of the join or reset.
func (m *Membership) begin(seq int64) { m.Sent.Add(seq) }

// known returns the seq above which Sent and Named are complete. The least seq in Sent serves only
// as this bound: it does not count as a message that the user sent.
func (m *Membership) known() int64 {
	if m.Named.Len() > maxRecent {
		return max(m.Sent.Min(), m.Named.Min())
	}
	return m.Sent.Min()
}

// sent adds a message to Sent, and reports whether it was new. It ignores messages at or below
// the least seq in Sent.
func (m *Membership) sent(seq int64) bool { return seq > m.Sent.Min() && m.Sent.remember(seq) }

// named adds a message to Named, and reports whether it was new. It ignores messages at or
// below the least seq in Sent.
func (m *Membership) named(seq int64) bool { return seq > m.Sent.Min() && m.Named.remember(seq) }

// unname removes a message from Named, unless Named has more than maxRecent messages. Such a full
// list shows that older mentions may have been dropped; if it were shortened, it would seem to have
// all mentions by name since the user joined.
func (m *Membership) unname(seq int64) {
	if m.Named.Len() <= maxRecent {
		m.Named.Remove(seq)
	}
}

// MayCount returns the messages in Sent and Named of a membership whose seq is at least `from`.
// Call it before folding an event that marks the messages from this seq on as unread, and load the
// room's chunks that have these messages: the chunks show which messages are live.
func (c *Conversation) MayCount(from int64) []int64 {
	m := c.Membership
	return slices.AppendSeq(slices.Collect(m.Sent.between(from-1, math.MaxInt64)), m.Named.between(from-1, math.MaxInt64))
}

// ReadPosition returns the read position that clients see. A mark does not change it, even if
// the mark lowers ReadSeq.
func (c *Conversation) ReadPosition() int64 {
	if m := c.Membership; m != nil {
		return max(c.ReadSeq, m.Reached)
	}
	return c.ReadSeq
}

// markFrom marks messages of a room unread for u, a member: if u has read messages whose seq is at
// least `from`, these messages count again. Messages up to the result of the method known remain
// read, since Sent and Named are incomplete for them. So messages posted before u joined also
// remain read.
func (u *User) markFrom(r *Room, from int64, appendedAt time.Time) (changed bool, reason Reason) {
	c := u.Conversation(r.ID)
	m := c.Membership
	read, back := c.ReadSeq, max(from-1, m.known())
	if back >= read {
		return false, markedFrom
	}
	u.touch(c)
	m.Reached = c.ReadPosition()
	u.moveBack(r, c, back, appendedAt)
	u.raise(c)
	return true, none
}

// moveBack lowers the read position of a member to `back`. The room's messages above `back` count
// again, except the messages in Sent, which the member sent.
func (u *User) moveBack(r *Room, c *Conversation, back int64, appendedAt time.Time) {
	m, read := c.Membership, c.ReadSeq
	c.ReadSeq = back
	for seq := range m.Sent.between(back, read) {
		if live, all, _ := r.Message(seq); live {
			m.Own.Add(seq)
			if all {
				m.OwnAll.Add(seq)
			}
			u.remark(r, c, seq, true)
		}
	}
	for _, seq := range slices.Collect(m.Named.between(back, read)) {
		switch live, all, recalled := r.Message(seq); {
		case recalled:
			m.unname(seq) // it was recalled after u had read it
		case live && !m.Own.Contains(seq):
			c.named(all).Add(seq)
			u.remark(r, c, seq, false)
		}
	}
	c.Category = r.Category // for the expiry sweep
	c.refresh(appendedAt)
}

// UnreadIn returns the messages of a room that count for a member, in ascending order. Every
// closed chunk above ReadSeq must be loaded.
func (c *Conversation) UnreadIn(r *Room) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		r.firsts(c.ReadSeq, func(seq int64) bool { return c.Membership.Own.Contains(seq) || yield(seq) })
	}
}

// remark is called for a message of the room that u had read and that counts again. It stores the
// [Mark] of u at the message: u sent it (own), or is mentioned in it by name.
func (u *User) remark(r *Room, c *Conversation, seq int64, own bool) {
	r.AddMark(seq, u.ID, Mark{Own: own, Touched: true})
	c.Membership.keep(seq)
}

// keep removes a message from Unmarked, so that the next write does not delete the user's [Mark] at
// this message.
func (m *Membership) keep(seq int64) {
	m.Unmarked = slices.DeleteFunc(m.Unmarked, func(other int64) bool { return other == seq })
}

// unmarkFrom ends the effect of markFrom: the messages of the room that were marked unread are read
// again. The read position becomes Reached, its value before the mark.
func (c *Conversation) unmarkFrom() {
	if m := c.Membership; m != nil && m.Reached > 0 {
		reached := m.Reached
		m.Reached, c.Touched = 0, true
		c.moveTo(reached)
	}
}
