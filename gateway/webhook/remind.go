package webhook

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/badged/badged/internal/category"
	"github.com/badged/badged/pubsub"
)

// OtherCategories, as a key of Config.RemindAfter, stands for every category of one part that
// is not a key itself.
const OtherCategories = "*"

// remindAfter returns how long something may be unread that a category covers: what its key
// says, or OtherCategories of one that is above all others.
func (s *Sender) remindAfter(name string) (after time.Duration, ok bool) {
	if after, ok = s.cfg.RemindAfter[name]; ok {
		return after, true
	}
	if category.Above(name) == "" {
		after, ok = s.cfg.RemindAfter[OtherCategories]
	}
	return after, ok
}

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
	pubsub.Badge
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
	b := c.Badge.Shown(slices.AppendSeq(slices.Clone(w.Categories), maps.Keys(s.cfg.RemindAfter))...)
	event := reminder{Badge: b, UnreadSince: map[string]time.Time{}}
	stretches := map[string]stretch{}
	for name, n := range b.Categories {
		after, ok := s.remindAfter(name)
		if n.Total == 0 || !ok || w.Categories != nil && !category.AnyCovers(w.Categories, name) {
			continue
		}
		u, ok := known[name]
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
			event.UnreadSince[name] = u.Since.UTC()
		case c.Again == 0 || left < c.Again:
			c.Again = left
		}
		stretches[name] = u
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
