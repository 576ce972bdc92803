package replay

import (
	"fmt"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/internal/badge"
	"github.com/badged/badged/projector/internal/store"
)

func (s *search) state() *badge.State {
	return &badge.State{Users: s.replay.Users, Rooms: s.replay.Rooms}
}

// view returns what a client sees of a conversation of either kind.
func (s *search) view(c *badge.Conversation) badge.View {
	if c.Member() {
		return c.ViewIn(s.replay.Rooms[c.ID], s.user.Paths.Levels)
	}
	return c.View()
}

// adds returns what a conversation of either kind adds to the total.
func (s *search) adds(c *badge.Conversation) int64 {
	v := s.view(c)
	return v.Adds(s.user.Paths.Levels).Total
}

// applies returns the level that applies to a conversation of either kind.
func (s *search) applies(c *badge.Conversation) events.Level {
	return events.Level(s.user.Paths.Levels.Of(string(c.Level), s.view(c).Category))
}

// total returns the user's total.
func (s *search) total() int64 { return s.user.Sums(s.replay.Rooms).Total }

// totalBefore returns the total if the question needs it: with rooms it is a sum.
func (s *search) totalBefore() int64 {
	if s.history == nil {
		return 0
	}
	return s.total()
}

// counts reports whether a message of a conversation is unread, and whether it
// mentions the user.
func (s *search) counts(c *badge.Conversation, seq int64) (counts, mentioned bool) {
	if !c.Member() {
		return c.Unread.Contains(seq) || c.Again.Contains(seq), c.Mentions.Contains(seq)
	}
	live, all, _ := s.replay.Rooms[c.ID].Message(seq)
	return live && seq > c.ReadSeq && !c.Membership.Own.Contains(seq), c.IsMention(seq, all, s.user.Paths.Levels.Of(string(c.Level), s.replay.Rooms[c.ID].Category))
}

// visitMessage processes a message to a room or its recall.
func (s *search) visitMessage(r *events.Record, it *store.Item, logged LoggedEvent) {
	e := &it.Event
	d := &e.Data
	c, ok := s.user.Conversations[d.ConversationID]
	member := ok && c.Member()
	before, watched := s.totalBefore(), s.effect.before(s, r.Position, e)
	var wasLive, wasRecalled bool
	if room := s.replay.Rooms[d.ConversationID]; room != nil && d.Seq > 0 {
		wasLive, _, wasRecalled = room.Message(d.Seq)
	}
	var was badge.View
	if member {
		was = s.view(c)
	}
	s.state().Fold(e)
	s.replay.forgetMarks(it)
	if e.Type == events.RoomReset && member {
		s.trace(c.ID).note(was, s.view(c), logged)
		s.trace(c.ID).ahead = nil
	}
	live := false
	if d.Seq > 0 {
		live, _, _ = s.replay.Rooms[d.ConversationID].Message(d.Seq)
	}
	if live && !wasLive {
		// Also before the user joins, who may not have read so far then.
		s.trace(d.ConversationID).count(d.Seq, logged)
	}
	if !member {
		return
	}
	why, detail := s.reasonInRoom(c, e, wasLive, wasRecalled)
	if e.Type == events.RoomReset && was == s.view(c) {
		why, detail = WhySameState, "the room was so before for the user, or had the same event before"
	}
	s.history.add(e, logged, before, s.totalBefore())
	s.effect.after(s, watched, why, detail)
	s.followMessages(r.Place, e, logged, why)
	if why != "" && s.wants(d.ConversationID) {
		s.uncounted.add(UncountedEvent{LoggedEvent: logged, ConversationID: d.ConversationID, Seq: d.Seq, Why: why, Detail: detail})
	}
}

// reasonInRoom returns why a message to a room, or its recall, has changed no count
// of a member, "" if it has.
func (s *search) reasonInRoom(c *badge.Conversation, e *events.Event, wasLive, wasRecalled bool) (Why, string) {
	posted := e.Type != events.RoomRecalled
	switch seq := e.Data.Seq; {
	case e.Type == events.RoomReset:
		return "", ""
	case seq <= c.ReadSeq:
		return WhyAlreadyRead, fmt.Sprintf("the room was read up to %d before", c.ReadSeq)
	case wasRecalled && e.Type != events.RoomChanged:
		return WhyRecalled, "the message was recalled before"
	case posted && wasLive:
		return WhyAlreadyDelivered, "an earlier event posted the message"
	case posted && e.Data.SenderID == s.user.ID:
		return WhyOwnMessage, "the user sent the message"
	case !posted && !wasLive:
		return WhyNotDelivered, "the message was not posted; if it comes, it does not count"
	}
	return "", ""
}
