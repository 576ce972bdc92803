package pubsub

// Badge is the number a user sees and what it is made of, as of one version.
// It is absolute: of two badges of one user with the same epoch, the one with
// the greater version is the newer, and nothing else need be compared.
type Badge struct {
	UserID string `json:"user_id"`
	// Epoch names the sequence that Version counts in. Versions of different
	// epochs do not compare: whoever holds another epoch takes the whole state
	// again.
	Epoch string `json:"epoch"`
	// Version grows by one with every event that changes anything a client of
	// this user can see. It is 0 for a user nothing has happened to.
	Version int64 `json:"version"`
	// Total is the sum over the user's conversations of what each adds by its
	// level.
	Total int64 `json:"total"`
	// Mentions is the sum of the unread mentions over the conversations whose
	// level is not none.
	Mentions int64 `json:"mentions"`
	// Categories is Total by category; categories that add nothing are absent.
	// It is never nil in a badge that badged made.
	Categories map[string]int64 `json:"categories"`
}

// Conversation is the state of one conversation for one user, as clients see
// it.
type Conversation struct {
	ConversationID string `json:"conversation_id"`
	// Unread is the number of delivered, not recalled messages above ReadSeq.
	Unread int64 `json:"unread"`
	// Mentions is how many of the unread messages mention the user.
	Mentions int64 `json:"mentions"`
	// FirstUnreadSeq is where an app jumps to: the least unread seq, or 0 where
	// nothing is unread.
	FirstUnreadSeq int64 `json:"first_unread_seq"`
	// ReadSeq is the read position; it never moves back.
	ReadSeq int64 `json:"read_seq"`
	// LastSeq is the greatest seq delivered to the user, 0 before the first.
	LastSeq int64 `json:"last_seq"`
	// Level is what the conversation adds to the total: "all" its unread, the
	// default, "mentions" its mentions, "none" nothing.
	Level string `json:"level"`
	// Category is the label of the conversation, "chat" unless its messages
	// say otherwise.
	Category string `json:"category"`
	// MarkedUnread is set while the user wants the conversation to count at
	// least 1.
	MarkedUnread bool `json:"marked_unread"`
	// Version is the user's version as of the conversation's last change.
	Version int64 `json:"version"`
}

// Update is what changed for one user by one commit of the projector: the
// user's whole badge and the whole state of each conversation that changed.
//
// It is complete for whoever holds version BaseVersion or later. Whoever holds
// an older one has missed an update and must read the state again: the numbers
// of an update are right on their own, but the conversations changed by the
// missed one are not among them.
type Update struct {
	Badge
	// Partition is the partition of the user; a bus may route by it.
	Partition int `json:"partition"`
	// BaseVersion is the version of the user before the commit.
	BaseVersion int64 `json:"base_version"`
	// Conversations holds each conversation that changed after BaseVersion,
	// once, most recently changed first.
	Conversations []Conversation `json:"conversations"`
}

// Snapshot is the state of one user, read from the tables at one instant.
type Snapshot struct {
	Badge
	// Conversations are most recently changed first.
	Conversations []Conversation `json:"conversations"`
	// More says that Conversations was cut at its limit.
	More bool `json:"more"`
}
