package foldtest

import (
	"slices"
	"strings"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/category"
)

// covers reports whether path is the category of, or is above it. It compares part by part.
func covers(path, of string) bool {
	above, parts := strings.Split(path, "/"), strings.Split(of, "/")
	return len(above) <= len(parts) && slices.Equal(above, parts[:len(above)])
}

// present returns the current category of the conversation, which is the category of its last
// message.
func (c *Conversation) present() string {
	if c.room != nil {
		return c.room.category
	}
	return c.category
}

// leave marks the conversation as read and as left. Messages up to upTo do not bring it back.
func (c *Conversation) leave(upTo int64) {
	c.leftAt = max(c.leftAt, c.last, upTo)
	c.readUpTo(c.last)
	c.unmark()
}

// applies returns the level that applies: the conversation's own level, or the level of the longest
// path with a level.
func (c *Conversation) applies(levels map[string]events.Level) events.Level {
	if c.level != events.LevelDefault {
		return c.level
	}
	closest, level := "", events.LevelAll
	for path, of := range levels {
		if covers(path, c.present()) && len(path) > len(closest) {
			closest, level = path, of
		}
	}
	return level
}

// unseen returns the number of unread messages above the seen position, and how many of them are
// mentions. A message that is read counts as seen.
func (c *Conversation) unseen() (messages, mentions int64) {
	for seq := range c.Unread {
		if seq > c.read && seq > c.seen {
			messages++
			if c.Mentions[seq] {
				mentions++
			}
		}
	}
	return messages, mentions
}

// Adds returns what the conversation adds to the numbers of the badge, and to the numbers of each
// path that covers its category.
func (c *Conversation) Adds(levels map[string]events.Level) (n category.Numbers) {
	if c.left() {
		return n
	}
	unread, mentions := c.count(), int64(len(c.Mentions))
	if c.Marked && unread == 0 {
		unread, n.Marked = 1, 1
	}
	unseen, unseenMentions := c.unseen()
	switch c.applies(levels) {
	case events.LevelNone:
		n.Muted.Total, n.Marked = unread, 0
	case events.LevelMentions, events.LevelDirectMentions:
		n.Total, n.Mentions, n.Unseen, n.Muted.Total, n.Marked = mentions, mentions, unseenMentions, unread-mentions, 0
	default:
		n.Total, n.Mentions, n.Unseen = unread, mentions, unseen
	}
	if n.Total > 0 {
		n.UnreadConversations = 1
	}
	if n.Muted.Total > 0 {
		n.Muted.Conversations = 1
	}
	return n
}

// Levels returns the levels that a user has set for categories.
func (m *Model) Levels(user string) map[string]events.Level { return m.play(user).users[user].levels }

// plus returns the sum of two Numbers.
func plus(a, b category.Numbers) category.Numbers {
	return category.Numbers{
		Total: a.Total + b.Total, Mentions: a.Mentions + b.Mentions, Unseen: a.Unseen + b.Unseen, Marked: a.Marked + b.Marked,
		UnreadConversations: a.UnreadConversations + b.UnreadConversations,
		Muted:               category.Muted{Total: a.Muted.Total + b.Muted.Total, Conversations: a.Muted.Conversations + b.Muted.Conversations},
	}
}

// Describe returns the state of a user as text.
func (m *Model) Describe(user string) string {
	u := m.play(user).users[user]
	s := State{Categories: map[string]category.Numbers{}, Levels: map[string]string{}}
	for path, level := range u.levels {
		s.Levels[path] = string(level)
	}
	for id, c := range u.conversations {
		n := c.Adds(u.levels)
		s.Numbers = plus(s.Numbers, n)
		parts := strings.Split(c.present(), "/")
		for i := range parts {
			path := strings.Join(parts[:i+1], "/")
			if sum := plus(s.Categories[path], n); sum != (category.Numbers{}) {
				s.Categories[path] = sum
			}
		}
		first := int64(0)
		for _, counted := range []map[int64]bool{c.Unread, c.Again} {
			for seq := range counted {
				if first == 0 || seq < first {
					first = seq
				}
			}
		}
		unseen, unseenMentions := c.unseen()
		s.Conversations = append(s.Conversations, ConversationState{
			ID: id, Unread: c.count(), First: first, Mentions: int64(len(c.Mentions)), Read: c.read, Last: c.last,
			Unseen: unseen, UnseenMentions: unseenMentions, Seen: max(c.read, c.seen),
			Level: c.level, Until: c.until, Category: c.category, Marked: c.Marked, Left: c.showsLeft(),
		})
	}
	return s.String()
}
