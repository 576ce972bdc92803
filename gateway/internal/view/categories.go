package view

import (
	"github.com/badged/badged/internal/base/category"
	"github.com/badged/badged/pubsub"
)

// Categories is the view of a client whose token is restricted to categories. Only the frames
// are restricted: the mailbox and reconciliation use the user's whole badge. Categories is not
// safe for concurrent use.
type Categories struct {
	// tops are the categories of the token, except categories that another category of the
	// token covers. held has, for each category of tops, the numbers that were last sent to the
	// client.
	tops []string
	held map[string]pubsub.Numbers
	// shown maps the id of each conversation that the client may show to the conversation's
	// category.
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

// Badge returns the part of a badge that the client sees. b must have all categories of the
// user.
func (v *Categories) Badge(b *pubsub.Badge) *pubsub.Badge {
	within := b.Within(v.tops)
	return &within
}

// Changes returns the part of changes that the client sees. b and conversations have the
// changes since the client's state. If a conversation has moved to a category outside the view,
// the result contains this conversation with Left set.
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
		within.Levels = map[string]string{} // all levels were removed
	}
	return within, seen
}
