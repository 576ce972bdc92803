package badge

import (
	"maps"
	"slices"

	"github.com/badged/badged/events"
)

// Room.Resets has the event keys of the last maxResets resets of a room, so that a repeated
// reset is not folded again. Keys of other events to rooms are not stored: folding such an
// event again changes nothing.
const (
	keyBytes  = 16
	maxResets = 16
)

// resetBy stores the key of a reset event and reports whether the key is new.
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

// reset folds room.reset: it removes all messages of a room above Seq of e, for all members.
// All members and all closed chunks of the room must be loaded.
func (s *State) reset(e *events.Event) Reason {
	d := &e.Data
	r := s.Room(d.ConversationID)
	if !r.resetBy(e) {
		return alreadyReset
	}
	r.end(d.Seq)
	r.changed(e.AppendedAt)
	for _, u := range s.Users {
		if c, ok := u.Conversations[r.ID]; ok && c.Member() && c.end(d.Seq, d.UpToSeq) {
			u.touch(c)
		}
	}
	return sameRoom
}

// end removes the messages of r above `last`, which becomes LastSeq. The chunk to which `last`
// belongs becomes the open chunk.
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

// end updates a membership after a reset of its room that kept the messages up to the seq `last`:
// it removes the messages above `last`. If the read or the seen position is above `last`, it lowers
// this position to `last`. If upTo is higher than the read position, end then raises the read
// position to upTo. end reports whether the membership changed.
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
