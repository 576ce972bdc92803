package replay

import (
	"slices"

	"github.com/badged/badged/events"
)

// MaxDelivered is the most delivered messages in an explanation.
const MaxDelivered = 1000

// Delivered are messages that were delivered to a user.
type Delivered struct {
	// Messages are the newest of the requested messages, newest first.
	Messages []DeliveredMessage `json:"messages" doc:"The messages, last delivered first."`
	More     int64              `json:"more" minimum:"0" doc:"How many were delivered before these. To list them, pass the position of the last message as before."`
}

// DeliveredMessage is a message, the event that first delivered it, and its
// fate.
type DeliveredMessage struct {
	ConversationID string `json:"conversation_id" doc:"Its conversation."`
	Seq            int64  `json:"seq" minimum:"1" doc:"The position of the message in its conversation."`
	Mentioned      bool   `json:"mentioned" doc:"Whether it mentions the user."`
	Fate           Fate   `json:"fate" enum:"unread,read,recalled,read_before,recalled_before,own_message" doc:"What became of the message. An unread message counts by the level of its conversation. read_before and recalled_before: it never counted, because it was read or recalled before it was delivered."`
	// By is nil if the message is unread or the user sent it, or if the event
	// is not known.
	By *LoggedEvent `json:"by,omitempty" doc:"The event that read or recalled it, if known; conversation.reset reads what it does not name, and room.reset what it ends."`
	LoggedEvent
}

// Fate is the outcome of a delivered message.
type Fate string

// The fates.
const (
	FateUnread         Fate = "unread"
	FateRead           Fate = "read"
	FateRecalled       Fate = "recalled"
	FateReadBefore     Fate = "read_before"     // the user had read further before the delivery
	FateRecalledBefore Fate = "recalled_before" // it was recalled before the delivery
	FateOwnMessage     Fate = "own_message"     // the user sent it
)

// deliveries keeps the last delivered messages.
type deliveries struct {
	limit int
	// kept are in the order of the log, at most twice limit.
	kept []DeliveredMessage
	more int64
}

// followMessages records a folded event: a delivery that was not repeated, or
// what the event did to earlier messages.
func (s *search) followMessages(at events.Place, e *events.Event, logged LoggedEvent, why Why) {
	d, id := s.delivered, e.Data.ConversationID
	if d == nil {
		return
	}
	if e.Type != events.MessageDelivered && e.Type != events.RoomPosted {
		for i := range d.kept {
			m := &d.kept[i]
			if m.ConversationID == id && s.countsAgain(m, e) {
				m.Fate, m.By = FateUnread, nil
			} else if m.Fate == FateUnread && (id == "" || id == m.ConversationID) {
				s.settle(m, logged)
			}
		}
		return
	}
	if !s.wants(id) || s.question.Before != (events.Place{}) && !at.Before(s.question.Before) {
		return
	}
	m := DeliveredMessage{
		ConversationID: id, Seq: e.Data.Seq, LoggedEvent: logged, Fate: FateUnread,
		Mentioned: e.Data.MentionsAll || slices.Contains(e.Data.MentionedUserIDs, s.user.ID),
	}
	switch why {
	case WhyOwnMessage:
		m.Fate = FateOwnMessage
	case WhyAlreadyRead, WhyLeft:
		m.Fate = FateReadBefore
		if read := s.trace(id).lastRead; read != nil {
			m.By = &read.LoggedEvent
		}
	case WhyRecalled:
		m.Fate = FateRecalledBefore
	case WhyAlreadyDelivered:
		return
	}
	d.add(m)
}

// countsAgain reports whether an event has made a message of its conversation unread
// again.
func (s *search) countsAgain(m *DeliveredMessage, by *events.Event) bool {
	switch by.Type {
	case events.ConversationMarkedUnread:
		return s.marked(m.ConversationID, m.Seq)
	case events.MessageChanged, events.RoomChanged:
		if m.Seq != by.Data.Seq {
			return false
		}
		counts, mentioned := s.counts(s.user.Conversations[m.ConversationID], m.Seq)
		m.Mentioned = mentioned || !counts && m.Mentioned
		return counts
	case events.ConversationReset, events.RoomReset:
		counts, _ := s.counts(s.user.Conversations[m.ConversationID], m.Seq)
		return counts
	}
	return false
}

// marked reports whether a message of a conversation counts again.
func (s *search) marked(id string, seq int64) bool {
	c := s.user.Conversations[id]
	if c.Member() {
		counts, _ := s.counts(c, seq)
		return counts && seq <= c.Membership.Reached
	}
	return c.Again.Contains(seq)
}

// settle records the fate of a message of the conversation, if the event
// decided it.
func (s *search) settle(m *DeliveredMessage, by LoggedEvent) {
	c := s.user.Conversations[m.ConversationID]
	recalled := c.Recalled.Contains(m.Seq)
	if c.Member() {
		_, _, recalled = s.replay.Rooms[c.ID].Message(m.Seq)
	}
	switch {
	case c.Again.Contains(m.Seq): // and still does
	case by.Type == events.RoomReset:
		if counts, _ := s.counts(c, m.Seq); !counts {
			m.Fate, m.By = FateRead, &by
		}
	case by.Type == events.ConversationReset, m.Seq <= c.ReadSeq && by.Type != events.MessageRecalled:
		m.Fate, m.By = FateRead, &by
	case recalled:
		m.Fate, m.By = FateRecalled, &by
	}
}

func (d *deliveries) add(m DeliveredMessage) {
	if d.kept = append(d.kept, m); len(d.kept) > 2*d.limit {
		d.more += int64(d.limit + 1)
		d.kept = slices.Delete(d.kept, 0, d.limit+1)
	}
}

// newest returns the kept messages; nil if none were requested.
func (d *deliveries) newest() *Delivered {
	if d == nil {
		return nil
	}
	surplus := max(0, len(d.kept)-d.limit)
	list := append([]DeliveredMessage{}, d.kept[surplus:]...)
	slices.Reverse(list)
	return &Delivered{Messages: list, More: d.more + int64(surplus)}
}
