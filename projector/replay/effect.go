package replay

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/badged/badged/events"
)

// Effect is the effect of one event on the badge of one user.
type Effect struct {
	UserID string `json:"user_id"`
	// Folded is set once the event is folded; before that there is no effect.
	Folded bool `json:"folded"`
	// Before and After are the totals.
	Before int64 `json:"before"`
	After  int64 `json:"after"`
	// Conversations are those whose unread messages or contribution to the
	// total changed, by id.
	Conversations []ConversationEffect `json:"conversations"`
	// Why and Detail say why no count changed, if none did.
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

// EventName names an event in the log: the first with that source and id in a
// transaction or after it. An event published again with the same source and id
// has a later transaction; one that was folded late has moved to a later one.
type EventName struct {
	Source, ID    string
	TransactionID int64
}

// EffectOf returns the effect of an event on the badge of a user. It costs as
// much as Explain.
func (x *Explainer) EffectOf(ctx context.Context, userID string, name EventName) (Effect, error) {
	w := &watchedEvent{name: name, effect: Effect{UserID: userID, Conversations: []ConversationEffect{}}}
	err := x.replay(ctx, userID, time.Time{}, func(in *Snapshot) (*search, error) {
		s := newSearch(userID, in, Question{})
		s.effect = w
		return s, nil
	}, func(*Snapshot, *search) error { return nil })
	if err != nil {
		return Effect{}, fmt.Errorf("find what event %q of %q did to user %q: %w", name.ID, name.Source, userID, err)
	}
	return w.effect, nil
}

// watchedEvent is an event whose effect a search looks for.
type watchedEvent struct {
	name   EventName
	effect Effect
}

// before returns the counts of the user's conversations if e is the watched
// event, and nil otherwise.
func (w *watchedEvent) before(s *search, at events.Position, e *events.Event) map[string]ConversationEffect {
	if w == nil || w.effect.Folded || w.name.Source != e.Source || w.name.ID != e.ID || at.TransactionID < w.name.TransactionID {
		return nil
	}
	w.effect.Before = s.total()
	all := make(map[string]ConversationEffect, len(s.user.Conversations))
	for id, c := range s.user.Conversations {
		all[id] = ConversationEffect{ConversationID: id, UnreadBefore: s.view(c).Unread, AddsBefore: s.adds(c)}
	}
	return all
}

// after records the effect of the event, given the result before it.
func (w *watchedEvent) after(s *search, before map[string]ConversationEffect, why Why, detail string) {
	if before == nil {
		return
	}
	x := &w.effect
	x.Folded, x.After, x.Why, x.Detail = true, s.total(), why, detail
	for id, c := range s.user.Conversations {
		change := before[id]
		change.ConversationID, change.UnreadAfter, change.AddsAfter, change.Level = id, s.view(c).Unread, s.adds(c), s.applies(c)
		if change.UnreadAfter != change.UnreadBefore || change.AddsAfter != change.AddsBefore {
			x.Conversations = append(x.Conversations, change)
		}
	}
	slices.SortFunc(x.Conversations, func(a, b ConversationEffect) int { return cmp.Compare(a.ConversationID, b.ConversationID) })
}
