package webhook

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/badged/badged/internal/category"
	"github.com/badged/badged/pubsub"
)

// memory remembers what an endpoint was told of the users who changed last, as a digest. It
// is safe for concurrent use.
type memory struct {
	mu            sync.Mutex
	recent, older map[string][sha256.Size]byte
}

// maxRemembered is how many users are remembered before the older ones are forgotten.
const maxRemembered = 20_000

// tell remembers what a user is told, and reports whether that is news. Until the call has
// failed the endpoint counts as told.
func (m *memory) tell(user string, what knowledge) (isNews bool, err error) {
	text, err := json.Marshal(what)
	if err != nil {
		return false, fmt.Errorf("encode what the endpoint knows: %w", err)
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

// forget forgets users, or all if there are none.
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

// knowledge is what an endpoint knows of a user: the numbers that it was told.
// It decides whether a change is news.
type knowledge struct {
	// Epoch is that of the numbers. In another one calls may have been forgotten that the
	// endpoint got.
	Epoch      string                    `json:"epoch,omitempty"`
	Badge      *pubsub.Numbers           `json:"badge,omitempty"`
	Categories map[string]pubsub.Numbers `json:"categories"`
}

// knowledgeOf returns what an endpoint knows once it was told a badge. With a
// filter only the numbers of categories that these cover are news.
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

// news decides whether a webhook must be told of a change, and returns the data
// of the event. It sets c.Tell, c.Same and c.Again.
func (f *feed) news(w Webhook, c *Change) (data json.RawMessage, tell bool, err error) {
	switch {
	case c.Type == BadgeChanged && c.Badge != nil:
		if tell, err = f.told.tell(c.Subject, knowledgeOf(c.Badge, w.Categories)); err != nil || !tell {
			return nil, false, err
		}
		data, err = json.Marshal(c.Badge.Shown(w.Categories...))
		return data, true, err
	case c.Type == RoomChanged && c.Room != nil:
		data, err = json.Marshal(c.Room)
		return data, w.Categories == nil || category.AnyCovers(w.Categories, c.Room.Category), err
	case c.Type == UnreadReminder && c.Badge != nil:
		return f.remind(w, c, f.cfg.Now())
	case c.Type == DriftFound && c.Badge != nil:
		data, err = json.Marshal(c.Badge.Shown())
		return data, true, err
	case c.Type == DeadletterBuried:
		data, err = json.Marshal(c.Letter)
		return data, c.Letter != nil, err // an operator was faster
	}
	return nil, false, fmt.Errorf("%s of %q has nothing to tell", c.Type, c.Subject)
}
