package webhook

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/badged/badged/internal/base/category"
	"github.com/badged/badged/internal/notify/outbound"
	"github.com/badged/badged/pubsub"
)

// memory is a cache of the numbers that one endpoint has received. For each user whose badge was
// sent recently, it stores a hash of the numbers in the last event. It is safe for concurrent
// use.
type memory struct {
	mu            sync.Mutex
	recent, older map[string][sha256.Size]byte
}

// maxRemembered is the maximum number of users in memory.recent. When `recent` is full, it replaces
// memory.older, and a new `recent` begins.
const maxRemembered = 20_000

// tell stores the numbers of a user that an event will send. It reports whether these numbers
// differ from the numbers in the last event about the user. If the call with the event fails,
// call forget.
func (m *memory) tell(user string, state knowledge) (isNews bool, err error) {
	text, err := json.Marshal(state)
	if err != nil {
		return false, fmt.Errorf("encode the numbers for the endpoint: %w", err)
	}
	digest := sha256.Sum256(text)
	m.mu.Lock()
	defer m.mu.Unlock()
	known, ok := m.recent[user]
	if !ok {
		known, ok = m.older[user]
	}
	if len(m.recent) >= maxRemembered {
		m.recent, m.older = nil, m.recent
	}
	if m.recent == nil {
		m.recent = map[string][sha256.Size]byte{}
	}
	m.recent[user] = digest
	return !ok || known != digest, nil
}

// forget removes users, or all users if none are given.
func (m *memory) forget(users ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, user := range users {
		delete(m.recent, user)
		delete(m.older, user)
	}
	if len(users) == 0 {
		m.recent, m.older = nil, nil
	}
}

// knowledge has the numbers of a user that an event sends to an endpoint. The next event about
// the user is sent only if these numbers have changed.
type knowledge struct {
	// Epoch is the epoch of the badge. If it changes, the numbers are sent again: it changes when
	// Postgres may have lost the state that earlier calls sent.
	Epoch      string                    `json:"epoch,omitempty"`
	Badge      *pubsub.Numbers           `json:"badge,omitempty"`
	Categories map[string]pubsub.Numbers `json:"categories"`
}

// knowledgeOf returns the numbers of a badge that an endpoint gets. filter has the categories of
// the webhook: only numbers of categories that the filter covers are sent. A nil filter covers all.
func knowledgeOf(b *pubsub.Badge, filter []string) knowledge {
	if filter == nil {
		return knowledge{b.Epoch, &b.Numbers, b.Categories}
	}
	k := knowledge{Epoch: b.Epoch, Categories: map[string]pubsub.Numbers{}}
	for name, n := range b.Categories {
		if category.AnyCovers(filter, name) {
			k.Categories[name] = n
		}
	}
	return k
}

// news returns the data of the event for a change. tell is true if the event must be sent to the
// webhook. For a reminder, news also sets c.NewState, c.Unchanged and c.RepeatAfter.
func (f *feed) news(w outbound.Webhook, c *outbound.Call) (data json.RawMessage, tell bool, err error) {
	switch {
	case c.Type == outbound.BadgeChanged && c.Badge != nil:
		if tell, err = f.told.tell(c.Subject, knowledgeOf(c.Badge, w.Categories)); err != nil || !tell {
			return nil, false, err
		}
		data, err = json.Marshal(c.Badge.Shown(w.Categories...))
		return data, true, err
	case c.Type == outbound.RoomChanged && c.Room != nil:
		data, err = json.Marshal(c.Room)
		return data, w.Categories == nil || category.AnyCovers(w.Categories, c.Room.Category), err
	case c.Type == outbound.UnreadReminder && c.Badge != nil:
		return f.remind(w, c, f.cfg.Now())
	case c.Type == outbound.DriftFound && c.Badge != nil:
		data, err = json.Marshal(c.Badge.Shown())
		return data, true, err
	case c.Type == outbound.DeadletterBuried:
		data, err = json.Marshal(c.Letter)
		return data, c.Letter != nil, err // Letter is nil if an operator has resolved the dead letter meanwhile
	}
	return nil, false, fmt.Errorf("%s of %q has no data to send", c.Type, c.Subject)
}
