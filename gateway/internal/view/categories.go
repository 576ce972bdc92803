package view

import (
	"github.com/badged/badged/internal/category"
	"github.com/badged/badged/pubsub"
)

// Categories is what a client sees whose token is restricted to categories. The mailbox
// and reconciliation know the user's whole badge: only what is sent is restricted. It is
// not safe for concurrent use.
type Categories struct {
	// tops are the categories of the token that none of the others covers, and held their
	// numbers.
	tops []string
	held map[string]pubsub.Numbers
	// shown has the categories of the conversations that the client may hold.
	shown map[string]string
}

// NewCategories returns the view that a client has after a snapshot.
func NewCategories(categories []string, state *pubsub.Snapshot) *Categories {
	v := &Categories{tops: category.Tops(categories), held: map[string]pubsub.Numbers{}, shown: make(map[string]string, len(state.Conversations))}
	for _, path := range v.tops {
		v.held[path] = state.Categories[path]
	}
	for i := range state.Conversations {
		v.shown[state.Conversations[i].ConversationID] = state.Conversations[i].Category
	}
	return v
}

// Badge returns what the view has of a badge that has all categories.
func (v *Categories) Badge(b *pubsub.Badge) *pubsub.Badge {
	within := b.Within(v.tops)
	return &within
}

// Changes returns what the view has of changes since the state that the client holds.
// A conversation that has gone to another category looks as if the user had left it.
func (v *Categories) Changes(b *pubsub.Badge, conversations []pubsub.Conversation) (*pubsub.Badge, []pubsub.Conversation) {
	seen := make([]pubsub.Conversation, 0, len(conversations))
	for _, c := range conversations {
		before, held := v.shown[c.ConversationID]
		delete(v.shown, c.ConversationID)
		switch {
		case category.AnyCovers(v.tops, c.Category):
			if !c.Left {
				v.shown[c.ConversationID] = c.Category
			}
		case !held:
			continue
		default:
			c = pubsub.Conversation{ConversationID: c.ConversationID, Level: category.LevelDefault, Category: before, Left: true, Version: c.Version}
		}
		seen = append(seen, c)
	}
	within := v.Badge(b)
	within.Numbers = pubsub.Numbers{}
	for _, path := range v.tops {
		if n, changed := b.Categories[path]; changed {
			v.held[path] = n
		}
		within.Add(v.held[path])
	}
	if b.Levels != nil && within.Levels == nil {
		within.Levels = map[string]string{} // there are none any more
	}
	return within, seen
}
