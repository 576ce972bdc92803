package badge

import (
	"iter"
	"math"
	"slices"
	"time"
)

// maxRecent is how many messages a membership remembers of those that its user sent,
// and of those that mention the user by name. A mark reaches back to the oldest.
const maxRecent = 64

// Recent is the greatest seqs of a set. Which these are does not depend on the order
// in which they came.
type Recent struct{ RangeSet }

// remember adds a message and reports whether it was new. One more than maxRecent are
// kept: if there are that many, messages below the least may have been forgotten.
func (r *Recent) remember(seq int64) bool {
	if r.Len() > maxRecent && seq <= r.Min() || !r.Add(seq) {
		return false
	}
	if r.Len() > maxRecent+1 {
		r.RemoveUpTo(r.Min())
	}
	return true
}

// begin remembers that nothing up to seq is known: the user joined there, or was reset.
// Messages above are remembered from then on.
func (m *Membership) begin(seq int64) { m.Sent.Add(seq) }

// known returns the seq above which Sent and Named are complete. The least of Sent
// is never a message, only this bound.
func (m *Membership) known() int64 {
	if m.Named.Len() > maxRecent {
		return max(m.Sent.Min(), m.Named.Min())
	}
	return m.Sent.Min()
}

// sent remembers a message of the user's own, and reports whether it was new.
func (m *Membership) sent(seq int64) bool { return seq > m.Sent.Min() && m.Sent.remember(seq) }

// named remembers a message that mentions the user by name, and reports whether it was
// new.
func (m *Membership) named(seq int64) bool { return seq > m.Sent.Min() && m.Named.remember(seq) }

// MayCount returns the messages of a membership, from one on, of which the room must
// tell whether they are live before a mark from there can be folded.
func (c *Conversation) MayCount(from int64) []int64 {
	m := c.Membership
	return slices.AppendSeq(slices.Collect(m.Sent.between(from-1, math.MaxInt64)), m.Named.between(from-1, math.MaxInt64))
}

// ReadPosition is the read position that clients see; a mark does not change it.
func (c *Conversation) ReadPosition() int64 {
	if m := c.Membership; m != nil {
		return max(c.ReadSeq, m.Reached)
	}
	return c.ReadSeq
}

// markFrom makes the messages of a room at or above from count again that u, a member,
// has read. Those that are not known any more, and those from before the user joined,
// do not.
func (u *User) markFrom(r *Room, from int64, at time.Time) bool {
	c := u.Conversation(r.ID)
	m := c.Membership
	read, back := c.ReadSeq, max(from-1, m.known())
	if back >= read {
		return false
	}
	u.touch(c)
	m.Reached = c.ReadPosition()
	u.moveBack(r, c, back, at)
	u.raise(c)
	return true
}

// moveBack makes the messages of a room above a seq count again for a member who has
// read further, without those that are known to be the member's own.
func (u *User) moveBack(r *Room, c *Conversation, back int64, at time.Time) {
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
	for seq := range m.Named.between(back, read) {
		if live, all, _ := r.Message(seq); live && !m.Own.Contains(seq) {
			c.named(all).Add(seq)
			u.remark(r, c, seq, false)
		}
	}
	c.Category = r.Category // for the expiry sweep
	c.refresh(at)
}

// UnreadIn returns the messages of a room that count for a member, in ascending order.
// Every closed chunk above the read position must be loaded.
func (c *Conversation) UnreadIn(r *Room) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		r.firsts(c.ReadSeq, func(seq int64) bool { return c.Membership.Own.Contains(seq) || yield(seq) })
	}
}

// MarkedIn returns the unread messages that were marked unread.
func (c *Conversation) MarkedIn(r *Room) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for seq := range c.UnreadIn(r) {
			if seq > c.Membership.Reached || !yield(seq) {
				return
			}
		}
	}
}

// remark makes the room find u again at a message that u had read.
func (u *User) remark(r *Room, c *Conversation, seq int64, own bool) {
	r.AddMark(seq, u.ID, Mark{Own: own, Touched: true})
	c.Membership.keep(seq)
}

// keep keeps the mark of a message from being deleted with those that were read before.
func (m *Membership) keep(seq int64) {
	rest := m.Unmarked[:0]
	for _, other := range m.Unmarked {
		if other != seq {
			rest = append(rest, other)
		}
	}
	m.Unmarked = rest
}

// unmarkFrom ends a mark from a message: the read position is the one before it again.
func (c *Conversation) unmarkFrom() {
	if m := c.Membership; m != nil && m.Reached > 0 {
		reached := m.Reached
		m.Reached, c.Touched = 0, true
		c.moveTo(reached)
	}
}
