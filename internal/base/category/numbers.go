package category

// Numbers are the numbers of a badge, or of a category path. Each number is a sum over the
// conversations of the badge or the path.
type Numbers struct {
	Total               int64 `json:"total" doc:"The sum of what the conversations add, which their levels decide."`
	Mentions            int64 `json:"mentions" doc:"The number of unread messages that mention the user, in conversations whose level is not none."`
	UnreadConversations int64 `json:"unread_conversations" doc:"The number of conversations that add something to the total, for apps whose badge counts conversations instead of messages."`
	Unseen              int64 `json:"unseen" doc:"The part of the total that the user has not seen: messages above the seen positions of their conversations."`
	Muted               Muted `json:"muted,omitzero" doc:"Unread messages, and marks of conversations, that a level excludes from the total, for apps that show a grey number for them; absent if there are none."`
	Marked              int64 `json:"marked,omitempty" doc:"The part of the total that comes from conversations that were marked unread and have no unread message; absent if it is 0."`
}

// Muted counts the unread messages that are not in the total because of a level.
type Muted struct {
	Total         int64 `json:"total" doc:"The number of these messages: all unread messages of a conversation with the level none, and all except the mentions with the level mentions or direct_mentions."`
	Conversations int64 `json:"conversations" doc:"The number of conversations that have such messages."`
}

// Add adds other numbers.
func (n *Numbers) Add(other Numbers) {
	n.Total += other.Total
	n.Mentions += other.Mentions
	n.UnreadConversations += other.UnreadConversations
	n.Unseen += other.Unseen
	n.Muted.Total += other.Muted.Total
	n.Muted.Conversations += other.Muted.Conversations
	n.Marked += other.Marked
}

// Minus returns these numbers minus other numbers.
func (n Numbers) Minus(other Numbers) Numbers {
	return Numbers{
		n.Total - other.Total, n.Mentions - other.Mentions, n.UnreadConversations - other.UnreadConversations, n.Unseen - other.Unseen,
		Muted{n.Muted.Total - other.Muted.Total, n.Muted.Conversations - other.Muted.Conversations},
		n.Marked - other.Marked,
	}
}

// The levels.
const (
	LevelDefault        = "default"
	LevelAll            = "all"
	LevelMentions       = "mentions"
	LevelDirectMentions = "direct_mentions"
	LevelNone           = "none"
)

// Count counts the unread messages of one conversation, or of several conversations that have the
// same level.
type Count struct {
	// Full is what the conversations add to a badge at the level all: each adds the number of its
	// unread messages, or 1 if it has no unread messages and is marked unread. Mentions is the
	// number of unread messages that count as mentions at the level that applies.
	Full, Mentions int64
	// Unseen and UnseenMentions count the unread messages and the mentions above the seen position.
	Unseen, UnseenMentions int64
	// Conversations is the number of conversations that add to Full. WithMentions is the number of
	// conversations with mentions. Beyond is the number of conversations that add more to Full than
	// to Mentions.
	Conversations, WithMentions, Beyond int64
	// Marked is the part of Full that comes from conversations without unread messages that are
	// marked unread.
	Marked int64
}

// CountOf returns the count of one conversation.
func CountOf(unread, mentions, unseen, unseenMentions int64, marked bool) Count {
	c := Count{Full: unread, Mentions: mentions, Unseen: unseen, UnseenMentions: unseenMentions}
	if marked && unread == 0 {
		c.Full, c.Marked = 1, 1
	}
	if c.Full > 0 {
		c.Conversations = 1
	}
	if mentions > 0 {
		c.WithMentions = 1
	}
	if c.Full > mentions {
		c.Beyond = 1
	}
	return c
}

// At returns what the conversations add to the numbers of a badge if they have the given level.
func (c Count) At(level string) Numbers {
	switch level {
	case LevelNone:
		return Numbers{Muted: Muted{c.Full, c.Conversations}}
	case LevelMentions, LevelDirectMentions:
		return Numbers{c.Mentions, c.Mentions, c.WithMentions, c.UnseenMentions, Muted{c.Full - c.Mentions, c.Beyond}, 0}
	}
	return Numbers{c.Full, c.Mentions, c.Conversations, c.Unseen, Muted{}, c.Marked}
}

// Levels are the levels that a user has set, by path.
type Levels map[string]string

// Of returns the level that applies to a conversation. If the conversation's own level is not
// default, the own level applies. Otherwise the level of a path applies: the longest path that
// covers the category and has a level. If there is no such path, the level is all.
func (l Levels) Of(own, category string) string {
	level, _ := l.From(own, category)
	return level
}

// From returns the level that Of returns, and the path for which the user has set this level. The
// path is "" if the level is the conversation's own level, or if no path that covers the category
// has a level.
func (l Levels) From(own, category string) (level, path string) {
	if own != LevelDefault {
		return own, ""
	}
	for path := category; path != "" && len(l) > 0; path = Above(path) {
		if level, ok := l[path]; ok {
			return level, path
		}
	}
	return LevelAll, ""
}

// AddTo adds the numbers n to each path that covers a category. If the sum for a path is zero,
// AddTo deletes the path from the map.
func AddTo(paths map[string]Numbers, category string, n Numbers) {
	for path := category; path != ""; path = Above(path) {
		sum := paths[path]
		if sum.Add(n); sum == (Numbers{}) {
			delete(paths, path)
		} else {
			paths[path] = sum
		}
	}
}
