package category

// Numbers are the numbers of a badge or of a path: sums over the conversations in it.
type Numbers struct {
	Total               int64 `json:"total" doc:"The sum of what the conversations add by their levels."`
	Mentions            int64 `json:"mentions" doc:"Unread messages that mention the user, in conversations whose level is not none."`
	UnreadConversations int64 `json:"unread_conversations" doc:"How many conversations add something to the total, for apps whose badge counts conversations instead of messages."`
	Unseen              int64 `json:"unseen" doc:"How much of the total the user has not seen: the messages above the seen positions."`
	Muted               Muted `json:"muted,omitzero" doc:"What is unread but kept out of the total by a level, for a grey number; absent if nothing is."`
	Marked              int64 `json:"marked,omitempty" doc:"How much of the total comes from conversations that were marked unread and have no unread message; absent if nothing does."`
}

// Muted counts what is unread but excluded from the total by a level.
type Muted struct {
	Total         int64 `json:"total" doc:"All of a conversation with the level none, all but its mentions with the level mentions."`
	Conversations int64 `json:"conversations" doc:"How many conversations these are of."`
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
		Muted{n.Muted.Total - other.Muted.Total, n.Muted.Conversations - other.Muted.Conversations}, n.Marked - other.Marked,
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

// Count counts what is unread in one conversation, or in several conversations with the same
// level together.
type Count struct {
	// Full is what a conversation adds at the level all: its unread messages, or 1 if it has
	// none and is marked unread. Mentions is how many of the messages are mentions at the
	// level that applies.
	Full, Mentions int64
	// Unseen and UnseenMentions count the messages and mentions above the seen position.
	Unseen, UnseenMentions int64
	// Conversations is how many conversations add to Full. WithMentions is how many have
	// mentions. Beyond is how many add more to Full than the number of their mentions.
	Conversations, WithMentions, Beyond int64
	// Marked is how much of Full comes from conversations that are marked unread and have no
	// unread message.
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

// At returns what the conversations add to the numbers of a badge, at a level.
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

// Of returns the level that applies to a conversation: its own level, unless that is default;
// otherwise the level of the longest path that covers its category and has a level; otherwise
// all.
func (l Levels) Of(own, category string) string {
	level, _ := l.From(own, category)
	return level
}

// From returns the level that Of returns, and the path for which the user has set it: "" if
// the level is the conversation's own or no path has one.
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

// AddTo adds numbers to every path that covers a category, and deletes paths whose numbers are
// then all zero.
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
