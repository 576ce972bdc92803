package badge

import (
	"cmp"
	"math"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/category"
)

// Conversation is the state of one conversation for one user.
type Conversation struct {
	ID       string
	Category string
	Level    events.Level
	// LevelUntil is when the level ends, in microseconds since 1970. LevelAfter is the level
	// that applies after this time. If the level does not end, LevelUntil is 0 and LevelAfter
	// is "".
	LevelUntil int64
	LevelAfter events.Level
	// Version is the version of the user after the last change of the conversation that a
	// client can see.
	Version int64
	// ReadSeq is the position above which messages count as unread. It is the read position,
	// except in a membership with messages marked unread: see [Membership.Reached].
	ReadSeq int64
	// SeenSeq is the seen position if it is above the read position, else 0.
	SeenSeq int64
	// LastSeq is the greatest seq delivered, recalled or not.
	LastSeq int64
	// LeftSeq is Never if the user has not left. When the user leaves, it becomes the greater
	// of LastSeq and up_to_seq of the event. The user counts as having left until a message
	// above LeftSeq is delivered. If a flag were stored instead of LeftSeq, the state would
	// depend on the order of deliveries and leaves.
	LeftSeq int64
	// DeliveredHour is the latest append time of a delivery, mark or join, in hours since
	// 1970. Only the expiry sweep uses it; clients do not see it. It is the maximum over all
	// these events, whatever their seqs, so their order does not matter.
	DeliveredHour int64

	Unread   BoundedSet // delivered, not recalled, above ReadSeq
	Mentions BoundedSet // the messages in Unread that mention the user
	// MarkedUnread has messages at or below ReadSeq that were marked unread and so count again. It
	// becomes empty with the next read whose seq is at least the read position.
	MarkedUnread RangeSet
	// Recalled has the recalled messages, delivered or not. It includes messages already read,
	// since a later mark must not count them again.
	Recalled RangeSet
	// Revisions has the last messages that were changed, or recalled with a revision number.
	Revisions Revisions

	// Membership is set if the conversation is a room and the user is a member. Then Unread,
	// MarkedUnread and Recalled are empty, LeftSeq is Never and LastSeq is unused. The current
	// category is in the room; Category is a copy of it from the time of the join or of the last
	// mark.
	Membership *Membership

	// first is the memory for the first range of Unread: most conversations have one range. A
	// separate array would be one more object for the garbage collector.
	first [1]SeqRange

	Marked bool
	// Touched is true if anything changed since the last write, visible to clients or not.
	Touched bool
	// Stored is true if the conversation has a row.
	Stored bool
	// Weighed is the number of ranges of this conversation that the user's Weight includes.
	Weighed int32
}

// Adds returns what the conversation adds to its user's numbers. levels are the levels that
// the user has set for categories.
func (v *View) Adds(levels category.Levels) category.Numbers {
	if v.Left {
		return category.Numbers{}
	}
	count := category.CountOf(v.Unread, v.Mentions, v.Unseen, v.UnseenMentions, v.Marked)
	return count.At(levels.Of(string(v.Level), v.Category))
}

// Count returns how many messages of c count: the unread messages, and the read messages that
// were marked unread. c must not be a membership.
func (c *Conversation) Count() int64 { return c.Unread.Len() + c.MarkedUnread.Len() }

// First returns the lowest seq that Count counts, or 0.
func (c *Conversation) First() int64 {
	if c.MarkedUnread.Len() > 0 { // MarkedUnread is below all of Unread
		return c.MarkedUnread.Min()
	}
	return c.Unread.Min()
}

// Left reports whether the user has left, and no message above LeftSeq was delivered after that.
func (c *Conversation) Left() bool { return c.LastSeq <= c.LeftSeq }

// ShowsLeft reports whether clients see that the user has left. Clients see this only if they could
// see the conversation before.
func (c *Conversation) ShowsLeft() bool { return c.Left() && c.Version > 0 }

// deliver adds the message of e to the unread set, unless the message is recalled or at or
// below the read position. The conversation gets the category of the message with the greatest
// seq. If two events have this seq and different categories, the category that sorts last by
// name applies, so that the order of the events does not matter. If e is a change of a message
// (message.changed), deliver also undoes a recall of the message, and removes the message from
// the mentions unless e mentions the user.
func (c *Conversation) deliver(e *events.Event, mentioned bool) Reason {
	d, changed := &e.Data, e.Type == events.MessageChanged
	of := cmp.Or(d.Category, events.DefaultCategory)
	if d.Seq > c.LastSeq || d.Seq == c.LastSeq && of > c.Category {
		c.LastSeq, c.Category, c.Touched = d.Seq, of, true
	}
	switch {
	case !changed:
		mentioned = mentioned && !c.Revisions.has(d.Seq)
	case !c.Revisions.accept(d.Seq, d.Revision):
		return alreadyRevised
	default:
		c.Touched = true
		if c.Recalled.Remove(d.Seq) {
			c.Unread.restore(d.Seq)
		}
	}
	switch {
	case d.Seq <= c.ReadSeq:
		return alreadyRead
	case c.Recalled.Contains(d.Seq):
		return alreadyRecalled
	}
	if changed && !mentioned {
		c.Mentions.take(d.Seq)
	}
	added := c.Unread.Add(d.Seq)
	if mentioned && (added || c.Unread.Contains(d.Seq)) && c.Mentions.Add(d.Seq) || added {
		c.Touched = true
	}
	if changed {
		return alreadyRevised
	}
	return alreadyDelivered
}

// read raises the read position to seq, unless the position is higher, and ends the marks. A read
// below the read position does not end the marks, since it is older than the marks.
func (c *Conversation) read(seq int64) Reason {
	if seq >= c.ReadPosition() {
		c.unmark()
	}
	c.moveTo(seq)
	return alreadyRead
}

// readDelivered is like read, but raises the read position at most to `last`, the seq of the last
// delivered message.
func (c *Conversation) readDelivered(seq, last int64) Reason {
	if seq >= c.ReadPosition() {
		c.unmark()
	}
	c.moveTo(min(seq, last))
	if seq > c.ReadPosition() {
		return nothingDelivered
	}
	return alreadyRead
}

// readAll reads c up to its last delivered message.
func (c *Conversation) readAll(last int64) Reason {
	c.unmark()
	c.moveTo(last)
	return alreadyRead
}

// unmark ends the mark of the conversation as a whole, and all marks of its messages.
func (c *Conversation) unmark() {
	if c.isMarked() {
		c.Marked, c.MarkedUnread, c.Touched = false, RangeSet{}, true
	}
	c.unmarkFrom()
}

// isMarked reports whether c as a whole, or a message in MarkedUnread, is marked unread. It does
// not consider a mark of a room's messages from a seq on (see [Membership.Reached]).
func (c *Conversation) isMarked() bool { return c.Marked || c.MarkedUnread.Len() > 0 }

// see raises the seen position to seq, unless it is higher.
func (c *Conversation) see(seq int64) Reason {
	if seq > c.SeenPosition() {
		c.SeenSeq, c.Touched = seq, true
	}
	return alreadySeen
}

// SeenPosition returns the seq up to which the user has seen the messages in a list. Read
// messages count as seen, even if they are marked unread later.
func (c *Conversation) SeenPosition() int64 { return max(c.ReadPosition(), c.SeenSeq) }

// cutSeen clears SeenSeq if the read position has reached it.
func (c *Conversation) cutSeen() {
	if c.SeenSeq <= c.ReadPosition() {
		c.SeenSeq = 0
	}
}

// Unseen returns how many unread messages of c are above the seen position, and how many of
// those messages mention the user. c must not be a membership.
func (c *Conversation) Unseen() (unseen, mentions int64) {
	if c.SeenSeq == 0 {
		return c.Unread.Len(), c.Mentions.Len()
	}
	return c.Unread.Above(c.SeenSeq), c.Mentions.Above(c.SeenSeq)
}

// moveTo raises the read position to seq, and removes the messages that become read. It never
// lowers the position.
func (c *Conversation) moveTo(seq int64) {
	if seq <= c.ReadPosition() {
		return
	}
	c.ReadSeq, c.Touched = seq, true
	c.cutSeen()
	if m := c.Membership; m != nil {
		m.moveTo(&c.Mentions, seq)
		return
	}
	c.Unread.RemoveUpTo(seq)
	c.Mentions.RemoveUpTo(seq)
	c.settle()
	c.forgetRecalls()
}

// recall removes a message from the unread set and from the mentions, and stores the recall,
// so that a later delivery of the message does not count. It does nothing if a change or
// recall of the message with the same or a greater revision number was folded before.
func (c *Conversation) recall(seq, revision int64) Reason {
	if revision > 0 {
		if !c.Revisions.accept(seq, revision) {
			return alreadyRevised
		}
		c.Touched = true
	}
	if !c.Recalled.Add(seq) {
		return alreadyRecalled
	}
	if c.forgetRecalls(); seq <= c.ReadSeq {
		c.MarkedUnread.Remove(seq)
		c.Touched = true
		return alreadyRead
	}
	c.Touched = true
	counted := c.Unread.bulk
	c.Unread.Remove(seq)
	c.Mentions.Remove(seq)
	if c.Unread.bulk.Count == 0 && counted.Count > 0 {
		c.Mentions.RemoveUpTo(counted.Hi) // nothing in the counted bulk is unread any more
	}
	c.settle()
	return notDelivered
}

// maxReadRecalls limits the ranges of recalled messages that are stored below the read
// position. Nearly every conversation has fewer. If a recall is forgotten, the message can
// count again when it is marked unread; but users mostly mark recent messages.
const maxReadRecalls = 32

// forgetRecalls removes the oldest recalls until at most maxReadRecalls ranges remain below
// the read position, and at most MaxRanges ranges in all.
func (c *Conversation) forgetRecalls() {
	if len(c.Recalled.Ranges) <= maxReadRecalls {
		return
	}
	for n := c.Recalled.find(c.ReadSeq); n > maxReadRecalls; n-- {
		c.Recalled.dropOldest()
	}
	for len(c.Recalled.Ranges) > MaxRanges {
		c.Recalled.dropOldest()
	}
}

// settle adjusts the counts of the bulks of Unread and Mentions (see [BoundedSet]), which are
// approximate, so that there are no more mentions than unread messages.
func (c *Conversation) settle() {
	c.Unread.raise(c.Mentions.RangeSet.Len())
	c.Mentions.lower(c.Unread.Len())
}

// markUnread makes c count at least 1 until the next read. It does nothing if the user has left the
// conversation. category is the current category of c. markUnread copies it to c, since the expiry
// sweep reads a membership's category from the row of the membership.
func (c *Conversation) markUnread(category string) Reason {
	if c.Left() {
		return hasLeft
	}
	if !c.Marked {
		c.Marked, c.Category, c.Touched = true, category, true
	}
	return alreadyMarked
}

// markMessages makes messages at or below the read position count again. It skips recalled
// messages, messages above the last delivered message, and messages up to LeftSeq. It also skips
// messages above the read position: they count without a mark when delivered.
func (c *Conversation) markMessages(seqs []int64) Reason {
	last := min(c.ReadSeq, c.LastSeq)
	for _, seq := range seqs {
		if seq > last || seq <= c.LeftSeq || c.Recalled.Contains(seq) || !c.MarkedUnread.Add(seq) {
			continue
		}
		c.Touched = true
	}
	for len(c.MarkedUnread.Ranges) > MaxRanges {
		c.MarkedUnread.dropOldest()
	}
	if c.Left() {
		return hasLeft
	}
	return allMarked
}

// refresh raises DeliveredHour to the append time of a delivery or mark.
func (c *Conversation) refresh(appendedAt time.Time) {
	if hour := HourOf(appendedAt); hour > c.DeliveredHour {
		c.DeliveredHour, c.Touched = hour, true
	}
}

// HourOf returns a time in hours since 1970. It returns 0 for times before 1970. For times after
// the year 246,000 it returns the greatest int32, since the column delivered_hour has this type.
func HourOf(appendedAt time.Time) int64 { return min(max(0, appendedAt.Unix()/3600), math.MaxInt32) }

// leave reads c up to its last delivered message and hides c from every list. seq is up_to_seq
// of the event, 0 if the event has none. c appears again when a message is delivered whose seq
// is greater than `seq` and greater than the seq of every message delivered before. Messages
// up to seq that are delivered later count as read.
func (c *Conversation) leave(seq int64) Reason {
	c.readAll(c.LastSeq)
	if seq = max(seq, c.LastSeq); seq > c.LeftSeq {
		c.LeftSeq, c.Touched = seq, true
	}
	return alreadyLeft
}

// View is what a client can see of a conversation. Two views can be compared with ==.
type View struct {
	Unread, Mentions, FirstUnread int64
	// Unseen and UnseenMentions count the messages of Unread and Mentions above the seen
	// position.
	Unseen, UnseenMentions    int64
	ReadSeq, SeenSeq, LastSeq int64
	// Level is the conversation's own level. If it is the default, a level that the user has
	// set for a category may apply instead.
	Level        events.Level
	LevelUntil   int64
	Category     string
	Marked, Left bool
}

// View returns what a client can see of c.
func (c *Conversation) View() View {
	unseen, unseenMentions := c.Unseen()
	return View{
		Unread:      c.Count(),
		Mentions:    c.Mentions.Len(),
		FirstUnread: c.First(),
		ReadSeq:     c.ReadSeq,
		SeenSeq:     c.SeenSeq,
		Unseen:      unseen, UnseenMentions: unseenMentions,
		LastSeq:    c.LastSeq,
		Level:      c.Level,
		LevelUntil: c.LevelUntil,
		Category:   c.Category,
		Marked:     c.Marked,
		Left:       c.ShowsLeft(),
	}
}
