package webhook

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/badged/badged/internal/base/category"
	"github.com/badged/badged/internal/notify/outbound"
	"github.com/badged/badged/pubsub"
)

// OtherCategories is a key of Config.RemindAfter. Its value applies to every top-level category
// that has no value of its own.
const OtherCategories = "*"

// remindAfter returns how long a category may have unread messages before a reminder is sent. The
// result is the value of the category in Config.RemindAfter, or for a top-level category without a
// value, the value of OtherCategories. ok is false if the category gets no reminders.
func (s *Sender) remindAfter(name string) (after time.Duration, ok bool) {
	if after, ok = s.cfg.RemindAfter[name]; ok {
		return after, true
	}
	if category.Above(name) == "" {
		after, ok = s.cfg.RemindAfter[OtherCategories]
	}
	return after, ok
}

// stretch is a period during which a category of a user has had unread messages. Since is its
// start.
type stretch struct {
	Since time.Time `json:"since"`
	// Told is true when a reminder about the period was sent. A period gets one reminder; the next
	// period begins when new messages are unread after all messages were read.
	Told bool `json:"told,omitempty"`
}

// reminder is the data of an event unread.reminder: the badge, and for each category that is due,
// the time at which its unread period began.
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

// remind returns the data of a reminder about a user's unread messages. tell is true if the
// reminder must be sent now. remind sets c.NewState to the unread periods of the user's categories,
// and c.RepeatAfter to the time until the next category is due. It sets c.Unchanged if the periods
// are the same as in c.SentState.
func (s *Sender) remind(w outbound.Webhook, c *outbound.Call, now time.Time) (data json.RawMessage, tell bool, err error) {
	known := map[string]stretch{}
	if c.SentState != nil {
		if err := json.Unmarshal(c.SentState, &known); err != nil {
			return nil, false, fmt.Errorf("decode the state of a reminder: %w", err)
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
			// If nothing is stored yet, the messages became unread at QueuedAt. Later changes are
			// handled soon after they happen, so now is close to the time of the change.
			u.Since = now
			if c.SentState == nil {
				u.Since = earlier(c.QueuedAt, now)
			}
		}
		switch left := u.Since.Add(after).Sub(now); {
		case u.Told:
		case left <= 0:
			u.Told = true
			event.UnreadSince[name] = u.Since.UTC()
		case c.RepeatAfter == 0 || left < c.RepeatAfter:
			c.RepeatAfter = left
		}
		stretches[name] = u
	}
	c.Unchanged = maps.EqualFunc(known, stretches, func(a, b stretch) bool { return a.Told == b.Told && a.Since.Equal(b.Since) })
	c.NewState = nil
	if len(stretches) > 0 {
		if c.NewState, err = json.Marshal(stretches); err != nil {
			return nil, false, fmt.Errorf("encode the state of a reminder: %w", err)
		}
	}
	data, err = json.Marshal(event)
	return data, len(event.UnreadSince) > 0, err
}
