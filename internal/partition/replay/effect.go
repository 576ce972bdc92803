package replay

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/fold/badge"
)

// Effect is the effect of one event on the badge of one user.
type Effect struct {
	UserID string `json:"user_id"`
	// Folded is true if the event was found among the folded events. Otherwise the event has no
	// effect yet, and only UserID is set.
	Folded bool `json:"folded"`
	// Before and After are the user's totals before and after the event.
	Before int64 `json:"before"`
	After  int64 `json:"after"`
	// Conversations are the conversations whose number of unread messages, or whose
	// contribution to the total, changed. They are sorted by id.
	Conversations []ConversationEffect `json:"conversations"`
	// Why and Detail give the reason if no count changed.
	Why    Why    `json:"why,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// ConversationEffect is the effect of an event on a conversation.
type ConversationEffect struct {
	ConversationID string       `json:"conversation_id"`
	UnreadBefore   int64        `json:"unread_before"`
	UnreadAfter    int64        `json:"unread_after"`
	AddsBefore     int64        `json:"adds_before"`
	AddsAfter      int64        `json:"adds_after"`
	Level          events.Level `json:"level"`
}

// EventName identifies an event in the log: the first event with this source and id whose
// transaction id is at least TransactionID. The transaction id may be greater than TransactionID
// for two reasons: an event that is folded late gets a later place, and the event may have been
// published again.
type EventName struct {
	Source, ID    string
	TransactionID int64
}

// EffectOf returns the effect of an event on the badge of a user. It costs as much as Explain.
func (x *Explainer) EffectOf(ctx context.Context, userID string, name EventName) (Effect, error) {
	w := &watchedEvent{name: name, effect: Effect{UserID: userID, Conversations: []ConversationEffect{}}}
	err := x.replay(ctx, userID, time.Time{}, func(snapshot *Snapshot) (*search, error) {
		s := newSearch(userID, snapshot, Question{})
		s.effect = w
		return s, nil
	}, func(*Snapshot, *search) error { return nil })
	if err != nil {
		return Effect{}, fmt.Errorf("find the effect of event %q of %q on user %q: %w", name.ID, name.Source, userID, err)
	}
	return w.effect, nil
}

// watchedEvent is an event whose effect a search looks for.
type watchedEvent struct {
	name   EventName
	effect Effect
}

// note is called after each event that concerns the user. If the event has the name w.name, note
// stores its effect in w. In x, the fields Before, Why and Detail of the effect are set.
func (w *watchedEvent) note(s *search, position events.Position, e *events.Event, x Effect, changes []badge.Change) {
	if w == nil || w.effect.Folded || w.name.Source != e.Source || w.name.ID != e.ID || position.TransactionID < w.name.TransactionID {
		return
	}
	x.UserID, x.Folded, x.After, x.Conversations = w.effect.UserID, true, s.total, w.effect.Conversations
	for i := range changes {
		c := &changes[i]
		if c.After.Unread != c.Before.Unread || c.AddedAfter != c.AddedBefore {
			x.Conversations = append(x.Conversations, ConversationEffect{
				ConversationID: c.ID, UnreadBefore: c.Before.Unread, UnreadAfter: c.After.Unread, AddsBefore: c.AddedBefore, AddsAfter: c.AddedAfter,
				Level: events.Level(s.user.Paths.Levels.Of(string(c.Level), c.After.Category)),
			})
		}
	}
	slices.SortFunc(x.Conversations, func(a, b ConversationEffect) int { return cmp.Compare(a.ConversationID, b.ConversationID) })
	w.effect = x
}
