package projector

import (
	"math"
	"strings"
	"time"

	"github.com/badged/badged/events"
)

// This file is what the numbers mean. It is pure: state and event in, state
// out; no clock, no I/O, no order of maps. What time it was, an event says.
//
// delivered, read and recalled commute and are idempotent: a union, a maximum
// and a union. The other types apply in the order of the log. Folding events
// one by one or by the thousand gives the same state and the same versions.

// user is the state of one user: what its badge shows, and those of its
// conversations that the events at hand need.
type user struct {
	id         string
	version    int64
	total      int64
	mentions   int64
	categories categoryTotals
	// conversations are by conversation id.
	conversations map[string]*conversation
	// changed are those of them that were touched since the rows were read or
	// written last.
	changed []*conversation
	// stored is the version that the row has, 0 where there is none.
	stored int64
	// weight is what the user takes in a cache, in bytes, roughly; ranges are
	// those in its sets that are part of it.
	weight, ranges int
}

// conversation is the state of one conversation for one user.
type conversation struct {
	id       string
	category string
	level    events.Level
	// version is the user's as of the last change that a client can see.
	version int64
	// readSeq is the read position.
	readSeq int64
	// lastSeq is the greatest seq delivered, recalled or not.
	lastSeq int64
	// leftSeq is lastSeq as of when the user left, or never. The user is out
	// while lastSeq still is leftSeq; a flag would make the order of deliveries
	// and reads matter.
	leftSeq int64
	// deliveredHour is when the latest delivery or mark was appended, in hours
	// since 1970: no client sees it, and the expiry sweep goes by it. A late
	// delivery counts as of when it came, whatever its seq, so that order does
	// not matter: a maximum.
	deliveredHour int64

	unread   boundedSet // delivered, not recalled, above readSeq
	mentions boundedSet // those of unread that mention the user
	recalled rangeSet   // above readSeq, delivered or not

	// first is what unread begins with: one range is what it mostly has, and an
	// array of its own would be one more object for the garbage collector.
	first [1]seqRange

	marked bool
	// touched is set where anything changed, seen by clients or not.
	touched bool
	// stored is set where there is a row.
	stored bool
	// weighed are the ranges that are part of the weight of the user.
	weighed int32
}

// never is a leftSeq that no lastSeq equals.
const never = -1

func newUser(id string) *user {
	id = strings.Clone(id) // which may be part of that of a whole group
	return &user{id: id, conversations: map[string]*conversation{}}
}

// conversation returns the state of a conversation, new where there was none.
func (u *user) conversation(id string) *conversation {
	c, ok := u.conversations[id]
	if !ok {
		c = &conversation{id: id, category: events.DefaultCategory, level: events.LevelAll, leftSeq: never}
		c.unread.ranges = c.first[:0]
		u.conversations[id] = c
	}
	return c
}

// apply folds the effect of e on u, who is one of its users; mentioned says
// whether e mentions it. It reports whether a client of u can see a
// difference, in which case u's version has grown by one. For UserReadAll
// every conversation that is not read must be among u's conversations.
func (u *user) apply(e *events.Event, mentioned bool) bool {
	d := &e.Data
	switch e.Type {
	case events.MessageDelivered:
		if d.SenderID == u.id {
			return false // nobody's own message counts
		}
		return u.change(d.ConversationID, func(c *conversation) {
			c.deliver(d, mentioned)
			c.refresh(e.AppendedAt)
		})
	case events.ConversationRead, events.ConversationExpired:
		return u.change(d.ConversationID, func(c *conversation) { c.read(d.UpToSeq) })
	case events.MessageRecalled:
		return u.change(d.ConversationID, func(c *conversation) { c.recall(d.Seq) })
	case events.ConversationMarkedUnread:
		return u.change(d.ConversationID, func(c *conversation) {
			c.markUnread()
			if c.marked {
				c.refresh(e.AppendedAt)
			}
		})
	case events.ConversationLevelSet:
		return u.change(d.ConversationID, func(c *conversation) { c.setLevel(d.Level) })
	case events.ConversationLeft:
		return u.change(d.ConversationID, (*conversation).leave)
	case events.UserReadAll:
		return u.readAll(d.Category)
	}
	return false
}

// change applies f to one conversation as one event.
func (u *user) change(conversationID string, f func(*conversation)) bool {
	c := u.conversation(conversationID)
	if !u.update(c, f) {
		return false
	}
	u.version++
	c.version = u.version
	return true
}

// readAll reads every conversation of a category, or every one where it is
// empty, as one event.
func (u *user) readAll(category string) bool {
	var seen []*conversation
	for _, c := range u.conversations {
		if category != "" && c.category != category {
			continue
		}
		if u.update(c, func(c *conversation) { c.read(c.lastSeq) }) {
			seen = append(seen, c)
		}
	}
	if len(seen) == 0 {
		return false
	}
	u.version++
	for _, c := range seen {
		c.version = u.version
	}
	return true
}

// update applies f to c, carries what it changes over to the sums, and reports
// whether a client can see a difference.
func (u *user) update(c *conversation, f func(*conversation)) bool {
	before, listed := c.view(), c.touched
	u.add(c, -1)
	f(c)
	u.add(c, +1)
	if c.touched && !listed {
		u.changed = append(u.changed, c)
	}
	return c.view() != before
}

// settle says that the rows have been written as u is.
func (u *user) settle() {
	for _, c := range u.changed {
		c.touched, c.stored = false, true
		n := len(c.unread.ranges) + len(c.mentions.ranges) + len(c.recalled.ranges)
		u.ranges += n - int(c.weighed)
		c.weighed = int32(n) //nolint:gosec // at most three times maxRanges
	}
	u.changed = u.changed[:0]
	u.stored = u.version
	u.weight = userWeight + conversationWeight*len(u.conversations) + rangeWeight*u.ranges
}

// add adds sign times what c adds to the sums of u.
func (u *user) add(c *conversation, sign int64) {
	if n := c.adds(); n != 0 {
		u.total += sign * n
		u.categories.add(c.category, sign*n)
	}
	if c.level != events.LevelNone {
		u.mentions += sign * c.mentions.len()
	}
}

// adds returns what c adds to the total: its level decides first.
func (c *conversation) adds() int64 {
	switch {
	case c.left():
		return 0
	case c.level == events.LevelNone:
		return 0
	case c.level == events.LevelMentions:
		return c.mentions.len()
	case c.marked:
		return max(1, c.unread.len())
	}
	return c.unread.len()
}

// left reports whether the user has left and nothing was delivered since.
func (c *conversation) left() bool { return c.leftSeq == c.lastSeq }

// deliver puts a message into the unread set, unless it is at or below the
// read position or recalled. The category is that of the last message; of two
// that claim to be it, the greater name, so that their order does not matter.
func (c *conversation) deliver(d *events.Data, mentioned bool) {
	category := d.Category
	if category == "" {
		category = events.DefaultCategory
	}
	if d.Seq > c.lastSeq || d.Seq == c.lastSeq && category > c.category {
		c.lastSeq, c.category, c.touched = d.Seq, category, true
	}
	if d.Seq <= c.readSeq || c.recalled.contains(d.Seq) {
		return
	}
	added := c.unread.add(d.Seq)
	if mentioned && (added || c.unread.contains(d.Seq)) && c.mentions.add(d.Seq) || added {
		c.touched = true
	}
}

// read moves the read position up to seq, never back, and ends a mark.
func (c *conversation) read(seq int64) {
	if c.marked {
		c.marked, c.touched = false, true
	}
	if seq <= c.readSeq {
		return
	}
	c.readSeq, c.touched = seq, true
	c.unread.removeUpTo(seq)
	c.mentions.removeUpTo(seq)
	c.settle()
	c.recalled.removeUpTo(seq) // such a message can never count again anyway
}

// recall takes a message out of the unread set and keeps it out for good: the
// last recalls, that is, where there are more than anybody would make.
func (c *conversation) recall(seq int64) {
	if seq <= c.readSeq || !c.recalled.add(seq) {
		return
	}
	c.touched = true
	counted := c.unread.block
	c.unread.remove(seq)
	c.mentions.remove(seq)
	if c.unread.block.count == 0 && counted.count > 0 {
		c.mentions.removeUpTo(counted.hi) // nothing is unread there any more
	}
	c.settle()
	for len(c.recalled.ranges) > maxRanges {
		c.recalled.dropOldest()
	}
}

// settle keeps two counts that may both err apart: nothing that mentions the
// user and is unread can be more than what is unread.
func (c *conversation) settle() {
	c.unread.raise(c.mentions.rangeSet.len())
	c.mentions.lower(c.unread.len())
}

// markUnread makes c count at least 1 until the next read. A conversation that
// the user has left adds nothing, and so cannot be marked.
func (c *conversation) markUnread() {
	if !c.marked && !c.left() {
		c.marked, c.touched = true, true
	}
}

// refresh notes that something was delivered, or marked, at a time.
func (c *conversation) refresh(at time.Time) {
	if hour := hourOf(at); hour > c.deliveredHour {
		c.deliveredHour, c.touched = hour, true
	}
}

// hourOf returns the hour in which at lies, in hours since 1970: 0 for any time
// before, and for those after the year 246,000 the last one that the column
// holds.
func hourOf(at time.Time) int64 { return min(max(0, at.Unix()/3600), math.MaxInt32) }

func (c *conversation) setLevel(level events.Level) {
	if c.level != level {
		c.level, c.touched = level, true
	}
}

// leave reads c up to its last delivered message and takes it out of every
// list until a later one is delivered.
func (c *conversation) leave() {
	c.read(c.lastSeq)
	if !c.left() {
		c.leftSeq, c.touched = c.lastSeq, true
	}
}

// view is what a client can see of a conversation; two views compare with ==.
type view struct {
	unread, mentions, firstUnread int64
	readSeq, lastSeq              int64
	level                         events.Level
	category                      string
	marked, left                  bool
}

func (c *conversation) view() view {
	return view{
		unread:      c.unread.len(),
		mentions:    c.mentions.len(),
		firstUnread: c.unread.min(),
		readSeq:     c.readSeq,
		lastSeq:     c.lastSeq,
		level:       c.level,
		category:    c.category,
		marked:      c.marked,
		left:        c.left(),
	}
}
