package replay

import (
	"slices"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/fold/badge"
)

// MaxDelivered is the maximum number of delivered messages in an explanation.
const MaxDelivered = 1000

// Delivered lists messages that were delivered to a user.
type Delivered struct {
	// Messages are the newest of the requested messages, newest first.
	Messages []DeliveredMessage `json:"messages" doc:"The messages, the last delivered first."`
	More     int64              `json:"more" minimum:"0" doc:"The number of messages that were delivered before the listed messages. To list them, set the parameter before to the position of the last listed message."`
}

// DeliveredMessage is a message, the event that first delivered it, and whether it was read or
// recalled.
type DeliveredMessage struct {
	ConversationID string `json:"conversation_id" doc:"The conversation of the message."`
	Seq            int64  `json:"seq" minimum:"1" doc:"The position of the message in its conversation: a later message has a greater seq."`
	Mentioned      bool   `json:"mentioned" doc:"Whether the message mentions the user."`
	Fate           Fate   `json:"fate" enum:"unread,read,recalled,read_before,recalled_before,own_message" doc:"What happened to the message. An unread message counts as the level of its conversation says. read_before and recalled_before mean that the message never counted, because it was read or recalled before its delivery."`
	// By is the event that caused Fate. It is nil if the message is unread, if the user sent it, or
	// if the event is not known.
	By *LoggedEvent `json:"by,omitempty" doc:"The event that read or recalled the message, if known. conversation.reset reads the messages that it does not name, and room.reset reads the messages that it deletes."`
	LoggedEvent
}

// Fate is the state of a delivered message for its user, such as unread or read.
type Fate string

// The fates.
const (
	FateUnread         Fate = "unread"
	FateRead           Fate = "read"
	FateRecalled       Fate = "recalled"
	FateReadBefore     Fate = "read_before"     // the message counted as read before its delivery
	FateRecalledBefore Fate = "recalled_before" // the message was recalled before the delivery
	FateOwnMessage     Fate = "own_message"     // the user sent the message
)

// deliveries stores the last delivered messages.
type deliveries struct {
	limit int
	// kept has the last messages in the order of the log, at most twice limit. more counts the
	// earlier messages.
	kept []DeliveredMessage
	more int64
}

// followMessages updates s.delivered after an event was folded. If the event has delivered a
// message, it adds the message to the list. Otherwise it updates the fate of the listed messages.
// `why` is the reason if the event changed no count. The event must not be a repetition.
func (s *search) followMessages(place events.Place, e *events.Event, logged LoggedEvent, why Why) {
	d, id := s.delivered, e.Data.ConversationID
	if d == nil {
		return
	}
	if e.Type != events.MessageDelivered && e.Type != events.RoomPosted {
		for i := range d.kept {
			if m := &d.kept[i]; id == "" || id == m.ConversationID {
				s.settle(m, e, logged)
			}
		}
		return
	}
	if !s.wants(id) || s.question.Before != (events.Place{}) && !place.Before(s.question.Before) {
		return
	}
	m := DeliveredMessage{
		ConversationID: id, Seq: e.Data.Seq, LoggedEvent: logged, Fate: FateUnread,
		Mentioned: e.Data.MentionsAll || slices.Contains(e.Data.MentionedUserIDs, s.user.ID),
	}
	switch why {
	case badge.WhyOwnMessage:
		m.Fate = FateOwnMessage
	case badge.WhyAlreadyRead, badge.WhyLeft:
		m.Fate = FateReadBefore
		if read := s.trace(id).lastRead; read != nil {
			m.By = &read.LoggedEvent
		}
	case badge.WhyRecalled:
		m.Fate = FateRecalledBefore
	case badge.WhyAlreadyDelivered:
		return
	}
	d.add(m)
}

// settle updates the fate of a message after an event was folded. The event is about the
// conversation of the message, or about all conversations.
func (s *search) settle(m *DeliveredMessage, e *events.Event, logged LoggedEvent) {
	c := s.user.Conversations[m.ConversationID]
	counts, mentioned := s.state.Counts(s.user, c, m.Seq)
	if changed := e.Type == events.MessageChanged || e.Type == events.RoomChanged; changed && m.Seq == e.Data.Seq {
		m.Mentioned = mentioned || !counts && m.Mentioned
	}
	reset := e.Type == events.ConversationReset || e.Type == events.RoomReset
	recall := e.Type == events.MessageRecalled || e.Type == events.RoomRecalled
	switch {
	case m.Fate == FateOwnMessage:
	case counts:
		m.Fate, m.By = FateUnread, nil
	case m.Fate != FateUnread:
	case recall && m.Seq == e.Data.Seq:
		m.Fate, m.By = FateRecalled, &logged
	case m.Seq <= c.ReadSeq && !recall || reset: // not !counts: of very many unread messages, some are stored only as a number
		m.Fate, m.By = FateRead, &logged
	}
}

func (d *deliveries) add(m DeliveredMessage) {
	if d.kept = append(d.kept, m); len(d.kept) > 2*d.limit {
		d.more += int64(d.limit + 1)
		d.kept = slices.Delete(d.kept, 0, d.limit+1)
	}
}

// newest returns the last d.limit messages, newest first. newest returns nil if d is nil: then no
// messages were requested.
func (d *deliveries) newest() *Delivered {
	if d == nil {
		return nil
	}
	surplus := max(0, len(d.kept)-d.limit)
	list := append([]DeliveredMessage{}, d.kept[surplus:]...)
	slices.Reverse(list)
	return &Delivered{Messages: list, More: d.more + int64(surplus)}
}
