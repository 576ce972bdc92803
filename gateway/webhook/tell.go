package webhook

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/badged/badged/pubsub"
)

// knowledge is what an endpoint knows of a user: the numbers that it was told.
// It decides whether a change is news.
type knowledge struct {
	// Epoch is that of the numbers. In another one calls may have been forgotten that the
	// endpoint got.
	Epoch      string           `json:"epoch,omitempty"`
	Total      *int64           `json:"total,omitempty"`
	Mentions   *int64           `json:"mentions,omitempty"`
	Categories map[string]int64 `json:"categories"`
	// Conversations are those that add to the total, and CategoryConversations the same
	// by category.
	Conversations         *int64           `json:"unread_conversations,omitempty"`
	CategoryConversations map[string]int64 `json:"category_conversations"`
}

// knowledgeOf returns what an endpoint knows once it was told a badge. With a
// filter only the numbers of these categories are news.
func knowledgeOf(b *pubsub.Badge, filter []string) knowledge {
	if filter == nil {
		return knowledge{b.Epoch, &b.Total, &b.Mentions, b.Categories, &b.UnreadConversations, b.CategoryConversations}
	}
	k := knowledge{Epoch: b.Epoch, Categories: map[string]int64{}, CategoryConversations: map[string]int64{}}
	for _, category := range filter {
		if n := b.Categories[category]; n != 0 {
			k.Categories[category], k.CategoryConversations[category] = n, b.ConversationsIn(category)
		}
	}
	return k
}

func (k knowledge) equal(other knowledge) bool {
	return k.Epoch == other.Epoch && same(k.Total, other.Total) && same(k.Mentions, other.Mentions) && maps.Equal(k.Categories, other.Categories) &&
		same(k.Conversations, other.Conversations) && maps.Equal(k.CategoryConversations, other.CategoryConversations)
}

func same(a, b *int64) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

// news decides whether a webhook must be told of a change, and returns the data
// of the event. It sets c.Tell and c.Again.
func (s *Sender) news(w Webhook, c *Change) (data json.RawMessage, tell bool, err error) {
	switch {
	case c.Type == BadgeChanged && c.Badge != nil:
		shown := c.Badge.Shown(w.Categories...)
		knows := knowledgeOf(&shown, w.Categories)
		var known knowledge
		if c.Told != nil {
			if err := json.Unmarshal(c.Told, &known); err != nil {
				return nil, false, fmt.Errorf("decode what the endpoint knows: %w", err)
			}
		}
		if c.Tell, err = json.Marshal(knows); err != nil {
			return nil, false, fmt.Errorf("encode what the endpoint knows: %w", err)
		}
		data, err = json.Marshal(shown)
		return data, c.Told == nil || !knows.equal(known), err
	case c.Type == RoomChanged && c.Room != nil:
		data, err = json.Marshal(c.Room)
		c.Tell = c.Told
		return data, w.Categories == nil || slices.Contains(w.Categories, c.Room.Category), err
	case c.Type == UnreadReminder && c.Badge != nil:
		return s.remind(w, c, s.cfg.Now())
	case c.Type == DriftFound && c.Badge != nil:
		data, err = json.Marshal(c.Badge.Shown())
		return data, true, err
	case c.Type == DeadletterBuried:
		data, err = json.Marshal(c.Letter)
		return data, c.Letter != nil, err // an operator was faster
	}
	return nil, false, fmt.Errorf("%s of %q has nothing to tell", c.Type, c.Subject)
}
