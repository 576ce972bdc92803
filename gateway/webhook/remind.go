package webhook

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// OtherCategories, as a key of Config.RemindAfter, stands for every category
// that is not a key itself.
const OtherCategories = "*"

// stretch is a time in which a category of a user had something unread.
type stretch struct {
	Since time.Time `json:"since"`
	// Told is set once the endpoint was reminded. It is not reminded again before
	// everything was read.
	Told bool `json:"told,omitempty"`
}

// reminder is the data of unread.reminder: the badge, and since when each
// category that the event is about has had something unread.
type reminder struct {
	UserID     string           `json:"user_id"`
	Epoch      string           `json:"epoch"`
	Version    int64            `json:"version"`
	Total      int64            `json:"total"`
	Mentions   int64            `json:"mentions"`
	Categories map[string]int64 `json:"categories"`
	// MoreCategories is that of [pubsub.Badge].
	MoreCategories bool `json:"more_categories,omitempty"`

	UnreadConversations   int64            `json:"unread_conversations"`
	CategoryConversations map[string]int64 `json:"category_conversations"`

	UnreadSince map[string]time.Time `json:"unread_since"`
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// remind decides whether an endpoint is reminded of what a user did not read. It
// sets c.Tell to the stretches of the user's categories, c.Same, and c.Again to the time
// until one is long enough.
func (s *Sender) remind(w Webhook, c *Change, now time.Time) (data json.RawMessage, tell bool, err error) {
	known := map[string]stretch{}
	if c.Told != nil {
		if err := json.Unmarshal(c.Told, &known); err != nil {
			return nil, false, fmt.Errorf("decode what was unread: %w", err)
		}
	}
	b := c.Badge.Shown(w.Categories...)
	event := reminder{
		UserID: b.UserID, Epoch: b.Epoch, Version: b.Version, Total: b.Total, Mentions: b.Mentions, Categories: b.Categories, MoreCategories: b.MoreCategories,
		UnreadConversations: b.UnreadConversations, CategoryConversations: b.CategoryConversations, UnreadSince: map[string]time.Time{},
	}
	stretches := map[string]stretch{}
	for category, n := range b.Categories {
		after, ok := s.cfg.RemindAfter[category]
		if !ok {
			after, ok = s.cfg.RemindAfter[OtherCategories]
		}
		if n == 0 || !ok || w.Categories != nil && !slices.Contains(w.Categories, category) {
			continue
		}
		u, ok := known[category]
		switch {
		case ok && u.Since.After(now): // it was stored while a clock was wrong
			u.Since = now
		case !ok:
			// Of the first change this says when; later ones are looked at at once.
			u.Since = now
			if c.Told == nil {
				u.Since = earlier(c.QueuedAt, now)
			}
		}
		switch left := u.Since.Add(after).Sub(now); {
		case u.Told:
		case left <= 0:
			u.Told = true
			event.UnreadSince[category] = u.Since.UTC()
		case c.Again == 0 || left < c.Again:
			c.Again = left
		}
		stretches[category] = u
	}
	c.Same = maps.EqualFunc(known, stretches, func(a, b stretch) bool { return a.Told == b.Told && a.Since.Equal(b.Since) })
	c.Tell = nil
	if len(stretches) > 0 {
		if c.Tell, err = json.Marshal(stretches); err != nil {
			return nil, false, fmt.Errorf("encode what is unread: %w", err)
		}
	}
	data, err = json.Marshal(event)
	return data, len(event.UnreadSince) > 0, err
}
