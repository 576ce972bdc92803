package view

import (
	"slices"

	"github.com/badged/badged/pubsub"
)

// Categories is what a client sees whose token is restricted to categories. The mailbox
// and reconciliation know the user's whole badge: only what is sent is restricted. It is
// not safe for concurrent use.
type Categories struct {
	categories []string
	// shown has the conversations of these categories that the client may hold, or
	// that mention the user.
	shown map[string]inView
	// mentions is the sum of theirs.
	mentions int64
}

// inView is a conversation in a view.
type inView struct {
	category string
	// mentions is what it adds to the mentions of the badge.
	mentions int64
}

// NewCategories returns the view that a client has after a snapshot.
func NewCategories(categories []string, state *pubsub.Snapshot) *Categories {
	v := &Categories{categories: categories, shown: make(map[string]inView, len(state.Conversations))}
	for id, n := range state.Mentioned {
		v.shown[id] = inView{mentions: n}
		v.mentions += n
	}
	for i := range state.Conversations {
		c := &state.Conversations[i]
		v.shown[c.ConversationID] = inView{c.Category, v.shown[c.ConversationID].mentions}
	}
	return v
}

// Badge returns what the view has of a badge.
func (v *Categories) Badge(b *pubsub.Badge) *pubsub.Badge {
	within := b.Within(v.categories, v.mentions)
	return &within
}

// Covers reports whether a badge of an update has what each category of the view adds to
// it: of many categories it has the first by name.
func (v *Categories) Covers(b *pubsub.Badge) bool {
	for name := range b.Categories {
		if name >= v.categories[len(v.categories)-1] { // they are sorted
			return true
		}
	}
	return !b.MoreCategories
}

// Changes returns what the view has of changes since the state that the client holds.
// A conversation that has gone to another category looks as if the user had left it.
func (v *Categories) Changes(b *pubsub.Badge, conversations []pubsub.Conversation) (*pubsub.Badge, []pubsub.Conversation) {
	seen := make([]pubsub.Conversation, 0, len(conversations))
	for _, c := range conversations {
		before, held := v.shown[c.ConversationID]
		delete(v.shown, c.ConversationID)
		v.mentions -= before.mentions
		switch {
		case slices.Contains(v.categories, c.Category):
			if !c.Left {
				v.show(&c)
			}
		case !held:
			continue
		default:
			c = pubsub.Conversation{ConversationID: c.ConversationID, Level: "all", Category: before.category, Left: true, Version: c.Version}
			if c.Category == "" { // the client has never had it
				c.Category = v.categories[0]
			}
		}
		seen = append(seen, c)
	}
	return v.Badge(b), seen
}

// show adds a conversation to the view.
func (v *Categories) show(c *pubsub.Conversation) {
	s := inView{category: c.Category}
	if c.Level != "none" {
		s.mentions = c.Mentions
	}
	v.shown[c.ConversationID] = s
	v.mentions += s.mentions
}
