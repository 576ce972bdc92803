package badge

import (
	"math"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/category"
)

// Conversation is the state of one conversation for one user.
type Conversation struct {
	ID       string
	Category string
	Level    events.Level
	// LevelUntil is when the level ends, in microseconds since 1970, and LevelAfter the
	// one that follows. Both are zero if it does not end.
	LevelUntil int64
	LevelAfter events.Level
	// Version is the user's version at the last change that a client can see.
	Version int64
	// ReadSeq is the read position. That of a membership is lower while messages below
	// it are marked unread: see [Membership.Reached].
	ReadSeq int64
	// SeenSeq is the seen position if it is above the read position, else 0.
	SeenSeq int64
	// LastSeq is the greatest seq delivered, recalled or not.
	LastSeq int64
	// LeftSeq is LastSeq when the user left, or the seq in the event if
	// greater, or Never. The user is out until LastSeq is above it. A flag
	// instead would make the order of deliveries and reads matter.
	LeftSeq int64
	// DeliveredHour is when the latest delivery, mark or join was appended, in hours
	// since 1970. No client sees it; the expiry sweep uses it. It is a maximum
	// of append times, whatever the seqs, so order does not matter.
	DeliveredHour int64

	Unread   BoundedSet // delivered, not recalled, above ReadSeq
	Mentions BoundedSet // those in Unread that mention the user
	// Again are messages at or below ReadSeq that were marked unread and count again.
	// A read at the read position or above ends all of them.
	Again RangeSet
	// Recalled are the recalled messages, delivered or not. Those that are read must
	// not count again.
	Recalled RangeSet
	// Revisions are of the last messages that were changed, or recalled with a revision.
	Revisions Revisions

	// Membership is set if the conversation is a room and the user a member. Then
	// Unread, Again and Recalled are empty, LeftSeq is Never, LastSeq is not used, and
	// Category is that of the room when the user joined or marked it: the room has
	// the present ones.
	Membership *Membership

	// first is the initial array of Unread, which mostly has one range: an
	// array of its own would be one more object for the garbage collector.
	first [1]SeqRange

	Marked bool
	// Touched is set if anything changed, whether clients see it or not.
	Touched bool
	// Stored is set if there is a row.
	Stored bool
	// Weighed is the number of ranges included in the user's weight.
	Weighed int32
}

// Adds returns what the conversation adds to the numbers of its user, who has set levels.
func (v *View) Adds(levels category.Levels) category.Numbers {
	if v.Left {
		return category.Numbers{}
	}
	count := category.CountOf(v.Unread, v.Mentions, v.Unseen, v.UnseenMentions, v.Marked)
	return count.At(levels.Of(string(v.Level), v.Category))
}

// Count returns how many messages of c, which is no membership, are unread or count
// again.
func (c *Conversation) Count() int64 { return c.Unread.Len() + c.Again.Len() }

// First returns the least of these messages, 0 if there is none.
func (c *Conversation) First() int64 {
	if c.Again.Len() > 0 { // they are below all of Unread
		return c.Again.Min()
	}
	return c.Unread.Min()
}

// Left reports whether the user has left and no later message was delivered.
func (c *Conversation) Left() bool { return c.LastSeq <= c.LeftSeq }

// ShowsLeft reports whether clients see that the user has left: only if they
// can know the conversation.
func (c *Conversation) ShowsLeft() bool { return c.Left() && c.Version > 0 }

// deliver puts a message into the unread set, unless it is recalled or at or
// below the read position. The category is that of the last message; of two
// with the same seq, the greater name wins, so that order does not matter.
// A change also takes a recall back, and a mention that it does not name.
func (c *Conversation) deliver(e *events.Event, mentioned bool) {
	d, changed := &e.Data, e.Type == events.MessageChanged
	of := d.Category
	if of == "" {
		of = events.DefaultCategory
	}
	if d.Seq > c.LastSeq || d.Seq == c.LastSeq && of > c.Category {
		c.LastSeq, c.Category, c.Touched = d.Seq, of, true
	}
	switch {
	case !changed:
		mentioned = mentioned && !c.Revisions.has(d.Seq)
	case !c.Revisions.accept(d.Seq, d.Revision):
		return
	default:
		c.Touched = true
		if c.Recalled.Remove(d.Seq) {
			c.Unread.restore(d.Seq)
		}
	}
	if d.Seq <= c.ReadSeq || c.Recalled.Contains(d.Seq) {
		return
	}
	if changed && !mentioned {
		c.Mentions.take(d.Seq)
	}
	added := c.Unread.Add(d.Seq)
	if mentioned && (added || c.Unread.Contains(d.Seq)) && c.Mentions.Add(d.Seq) || added {
		c.Touched = true
	}
}

// read moves the read position up to seq, never back, and clears a mark. A
// read below the position is older than the mark and leaves it.
func (c *Conversation) read(seq int64) {
	if seq >= c.ReadPosition() {
		c.unmark()
	}
	c.moveTo(seq)
}

// readDelivered reads up to seq, but no further than the last delivered message.
func (c *Conversation) readDelivered(seq, last int64) {
	if seq >= c.ReadPosition() {
		c.unmark()
	}
	c.moveTo(min(seq, last))
}

// readAll reads c up to its last delivered message.
func (c *Conversation) readAll(last int64) {
	c.unmark()
	c.moveTo(last)
}

// unmark clears a mark, and those of messages.
func (c *Conversation) unmark() {
	if c.isMarked() {
		c.Marked, c.Again, c.Touched = false, RangeSet{}, true
	}
	c.unmarkFrom()
}

// isMarked reports whether c or messages of it are marked unread.
func (c *Conversation) isMarked() bool { return c.Marked || c.Again.Len() > 0 }

// see moves the seen position up to seq, never back.
func (c *Conversation) see(seq int64) {
	if seq > c.SeenPosition() {
		c.SeenSeq, c.Touched = seq, true
	}
}

// SeenPosition returns the seq up to which the user has seen that there is something. What
// is read is seen, also if it is marked unread then.
func (c *Conversation) SeenPosition() int64 { return max(c.ReadPosition(), c.SeenSeq) }

// cutSeen forgets a seen position that the read position has reached.
func (c *Conversation) cutSeen() {
	if c.SeenSeq <= c.ReadPosition() {
		c.SeenSeq = 0
	}
}

// Unseen returns how many messages of c, which is no membership, are unread and above the
// seen position, and how many of them mention the user.
func (c *Conversation) Unseen() (unseen, mentions int64) {
	if c.SeenSeq == 0 {
		return c.Unread.Len(), c.Mentions.Len()
	}
	return c.Unread.Above(c.SeenSeq), c.Mentions.Above(c.SeenSeq)
}

// moveTo moves the read position up to seq, never back.
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

// recall takes a message out of those that count and keeps it out, unless a later
// revision of the message came before.
func (c *Conversation) recall(seq, revision int64) {
	if revision > 0 {
		if !c.Revisions.accept(seq, revision) {
			return
		}
		c.Touched = true
	}
	if !c.Recalled.Add(seq) {
		return
	}
	if c.forgetRecalls(); seq <= c.ReadSeq {
		c.Again.Remove(seq)
		c.Touched = true
		return
	}
	c.Touched = true
	counted := c.Unread.block
	c.Unread.Remove(seq)
	c.Mentions.Remove(seq)
	if c.Unread.block.Count == 0 && counted.Count > 0 {
		c.Mentions.RemoveUpTo(counted.Hi) // nothing there is unread now
	}
	c.settle()
}

// maxReadRecalls is how many ranges of recalled messages below the read position are
// kept. Nearly every row has fewer recalls, and marks name recent messages.
const maxReadRecalls = 32

// forgetRecalls forgets the oldest recalls past the bounds: maxReadRecalls ranges
// below the read position, and MaxRanges in all.
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

// settle keeps two approximate counts consistent: there cannot be more unread
// mentions than unread messages.
func (c *Conversation) settle() {
	c.Unread.raise(c.Mentions.RangeSet.Len())
	c.Mentions.lower(c.Unread.Len())
}

// markUnread makes c count at least 1 until the next read. A conversation that
// the user has left counts nothing and cannot be marked. The category is that of c;
// the row of a membership keeps it for the expiry sweep.
func (c *Conversation) markUnread(category string) {
	if !c.Marked && !c.Left() {
		c.Marked, c.Category, c.Touched = true, category, true
	}
}

// markMessages makes messages at or below the read position count again. It leaves
// out recalled ones, those beyond the last delivered one, and those from before the
// user left. Messages above the read position count anyway, if they were delivered.
func (c *Conversation) markMessages(seqs []int64) {
	last := min(c.ReadSeq, c.LastSeq)
	for _, seq := range seqs {
		if seq > last || seq <= c.LeftSeq || c.Recalled.Contains(seq) || !c.Again.Add(seq) {
			continue
		}
		c.Touched = true
	}
	for len(c.Again.Ranges) > MaxRanges {
		c.Again.dropOldest()
	}
}

// refresh records the time of a delivery or a mark.
func (c *Conversation) refresh(at time.Time) {
	if hour := HourOf(at); hour > c.DeliveredHour {
		c.DeliveredHour, c.Touched = hour, true
	}
}

// HourOf returns the hour of a time, in hours since 1970. It returns 0 for
// earlier times, and the greatest value of the column for times after the year
// 246,000.
func HourOf(at time.Time) int64 { return min(max(0, at.Unix()/3600), math.MaxInt32) }

// leave reads c up to its last delivered message and hides it from every list
// until a message above both that and seq is delivered. Later deliveries up to
// seq are read as they come.
func (c *Conversation) leave(seq int64) {
	c.readAll(c.LastSeq)
	if seq = max(seq, c.LastSeq); seq > c.LeftSeq {
		c.LeftSeq, c.Touched = seq, true
	}
}

// View is what a client can see of a conversation; views compare with ==.
type View struct {
	Unread, Mentions, FirstUnread int64
	// Unseen and UnseenMentions are those above the seen position.
	Unseen, UnseenMentions    int64
	ReadSeq, SeenSeq, LastSeq int64
	// Level is that of the conversation itself.
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
