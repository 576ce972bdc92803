package badge

import (
	"maps"
	"slices"

	"github.com/badged/badged/events"
)

// The keys of the last resets of a room, which are not folded again: of other events to
// rooms no keys are remembered, since a repeat of them changes nothing.
const (
	keyBytes  = 16
	maxResets = 16
)

// resetBy remembers a reset and reports whether it is new.
func (r *Room) resetBy(e *events.Event) bool {
	key := e.Key()
	for at := 0; at < len(r.Resets); at += keyBytes {
		if r.Resets[at:at+keyBytes] == string(key[:]) {
			return false
		}
	}
	r.Resets += string(key[:])
	r.Resets = r.Resets[max(0, len(r.Resets)-maxResets*keyBytes):]
	return true
}

// reset ends a room at a seq, for all members. They and the closed chunks of the room
// must be loaded.
func (s *State) reset(e *events.Event) {
	d := &e.Data
	r := s.Room(d.ConversationID)
	if !r.resetBy(e) {
		return
	}
	r.end(d.Seq)
	r.changed(e.AppendedAt)
	for _, u := range s.Users {
		if c, ok := u.Conversations[r.ID]; ok && c.Member() && c.end(d.Seq, d.UpToSeq) {
			u.touch(c)
		}
	}
}

// end makes r have no messages above a seq, which is the last one. The chunk that has
// that seq becomes the open one.
func (r *Room) end(last int64) {
	if i := r.closedAt(last); i < len(r.Closed) {
		r.Open, r.Closed = *r.Closed[i], r.Closed[:i]
		r.Open.Bound, r.Open.Stored = 0, false
		r.Since, r.ClosedLive, r.ClosedAll = 0, 0, 0
		for _, c := range r.Closed {
			r.Since = c.Bound
			r.ClosedLive += c.Live.Len()
			r.ClosedAll += c.All.Len()
		}
		r.ClosedChanges++
	}
	for _, set := range []*RangeSet{&r.Open.Live, &r.Open.All, &r.Open.Recalled} {
		*set = set.cut(last)
	}
	r.Open.Touched = true
	r.LastSeq = last
	n, _ := r.Revisions.find(last + 1)
	r.Revisions = slices.Clip(r.Revisions[:n])
	if !r.Ended || last < r.EndedAt {
		r.Ended, r.EndedAt = true, last
	}
	maps.DeleteFunc(r.Marks, func(seq int64, _ map[string]*Mark) bool { return seq > last })
}

// end follows a room that ends at a seq, for a member who has read at least up to
// another. It reports whether the membership has changed.
func (c *Conversation) end(last, upTo int64) bool {
	m := c.Membership
	if c.SeenPosition() <= last && m.Sent.Max() <= last && m.Named.Max() <= last && upTo <= c.ReadSeq {
		return false
	}
	for _, set := range []*BoundedSet{&c.Mentions, &m.Own, &m.OwnAll, &m.NamedAll} {
		set.RemoveAbove(last)
	}
	m.Sent.RangeSet, m.Named.RangeSet = m.Sent.cut(last), m.Named.cut(last)
	if m.Sent.Len() == 0 {
		m.begin(last)
	}
	c.ReadSeq, m.Reached = min(c.ReadSeq, last), min(m.Reached, last)
	if upTo > c.ReadSeq {
		c.ReadSeq = upTo
		m.moveTo(&c.Mentions, upTo)
	}
	if m.Reached <= c.ReadSeq {
		m.Reached = 0
	}
	c.SeenSeq = min(c.SeenSeq, last)
	c.cutSeen()
	return true
}
