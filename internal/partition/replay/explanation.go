package replay

import (
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/fold/badge"
	"github.com/badged/badged/pubsub"
)

// Explanation explains why the badge of a user is what it is.
type Explanation struct {
	UserID    string     `json:"user_id" doc:"The user."`
	Partition int        `json:"partition" minimum:"0" doc:"The partition of the user."`
	At        *time.Time `json:"at,omitempty" doc:"The time for which the badge is explained; absent for the current badge."`
	Position  string     `json:"position" doc:"The position up to which the log of the partition was folded, such as 1234/56."`
	// ArchivedUntil is when the latest archived event was appended. It is nil if nothing is
	// archived, or if the archive was read.
	ArchivedUntil *time.Time `json:"archived_until,omitempty" doc:"Events that were appended up to this time are archived: they count, but cannot be listed. Absent if no events are archived, or if the archive was read."`
	// GivenUpEvents counts the archived events of the partition in files that an operator has
	// declared lost. If it is not 0, events up to ArchivedUntil cannot be listed, even with the
	// archive.
	GivenUpEvents int64 `json:"given_up_events,omitempty" doc:"The number of archived events of the partition in files that were given up. If there are any, events up to archived_until cannot be listed, even with the archive. Absent if there are none."`

	// Version and Numbers are the state according to the log. If healing has raised the user's
	// version, Version includes this increase, except in an explanation of a past time.
	Version int64 `json:"version" minimum:"0" doc:"The version according to the log."`
	pubsub.Numbers
	Categories map[string]pubsub.Numbers `json:"categories" doc:"The numbers of each category, according to the log."`
	// Levels maps each category with a level to the event that set the level.
	Levels map[string]LoggedEvent `json:"levels,omitempty" doc:"The events that set the levels of categories, by category; absent if no category has a level."`

	// Conversations are the conversations with unread messages or a mark, even if their level
	// excludes them from the total. The most recently changed conversations come first, at most
	// maxExplained.
	Conversations     []ExplainedConversation `json:"conversations" doc:"Conversations with unread messages or a mark, whatever their level, the most recently changed first."`
	MoreConversations int                     `json:"more_conversations" minimum:"0" doc:"The number of further conversations, which are not listed."`
	MoreAdds          int64                   `json:"more_adds" minimum:"0" doc:"What the conversations that are not listed add to the total together."`

	// Uncounted are events that concerned the user and changed no count, newest first, at most
	// maxUncounted. MoreUncounted is the number of further events that changed no count.
	Uncounted     []UncountedEvent `json:"uncounted" doc:"Events that named the user and changed no count, newest first. If there are many events of the same type and reason, only the newest of them are listed, so that rare events are listed too."`
	MoreUncounted int64            `json:"more_uncounted" minimum:"0" doc:"The number of further events, which are not listed."`
	// UncountedKinds counts all events that changed no count, listed or not. It has an entry for
	// each type and reason, the most frequent first.
	UncountedKinds []UncountedKind `json:"uncounted_kinds" doc:"The number of events that changed no count, by type and reason, including events that are not listed; most frequent first."`

	// History and Delivered are set if the question requests them.
	History   *History   `json:"history,omitempty" doc:"The total over time; absent if the request did not ask for it."`
	Delivered *Delivered `json:"delivered,omitempty" doc:"The delivered messages and the fate of each; absent if the request did not ask for them."`

	Table *pubsub.Badge `json:"table,omitempty" doc:"The badge in the tables; absent for a past time."`
	// Agrees is true if every row of the user, and of the user's rooms, agrees with the log.
	// Differences lists at most maxDifferences differences, and MoreDifferences counts the rest.
	Agrees          bool         `json:"agrees" doc:"Whether all rows of the user, of the user's conversations and of the user's rooms agree with the log; always true for a past time."`
	Differences     []Difference `json:"differences" doc:"The differences between the tables and the log. Long values are truncated."`
	MoreDifferences int64        `json:"more_differences" minimum:"0" doc:"The number of further differences, which are not listed."`
}

// Known reports whether the explanation contains anything about the user.
func (e *Explanation) Known() bool {
	return e.Version > 0 || len(e.Uncounted) > 0 || e.Table != nil && e.Table.Version > 0 || !e.Agrees
}

// LoggedEvent identifies an event in the log. If the event cannot be decoded, ID is the UUID of its
// row, and Source, Type and Time are empty.
type LoggedEvent struct {
	ID         string      `json:"event_id" doc:"The id of the event."`
	Source     string      `json:"source,omitempty" doc:"The source of the event; absent if the event cannot be decoded."`
	Type       events.Type `json:"type,omitempty" doc:"The type of the event; absent if the event cannot be decoded."`
	Time       time.Time   `json:"time,omitzero" doc:"When the event happened, according to the publisher."`
	AppendedAt time.Time   `json:"appended_at" doc:"When the statement ran that appended the event to the log."`
	FoldedAt   time.Time   `json:"folded_at" doc:"When the event was folded, to the second. No app could see its effect earlier. The time is later than appended_at if folding was behind or waited for a transaction to end."`
	Position   string      `json:"position" doc:"The position of the event in the log, such as 1234/56."`
}

// ExplainedConversation says what a conversation adds to the total, and why.
type ExplainedConversation struct {
	pubsub.Conversation
	Adds int64 `json:"adds" minimum:"0" doc:"What the conversation adds to the total."`
	// Members is 0 unless the user is a member of the room.
	Members int64 `json:"members,omitempty" minimum:"1" doc:"The current number of members of the room; absent if the user is not a member of a room with this id."`
	// Messages are unread messages, greatest seq first, at most maxCounted. MoreMessages counts
	// the unread messages that are not listed.
	Messages     []CountedMessage `json:"messages" doc:"The unread messages, highest seq first."`
	MoreMessages int64            `json:"more_messages" minimum:"0" doc:"The number of further unread messages, which are not listed."`
	LastRead     *ReadEvent       `json:"last_read,omitempty" doc:"The last event that moved the read position; absent if there was none."`
	MarkedBy     *LoggedEvent     `json:"marked_by,omitempty" doc:"The event that marked the conversation unread; absent if it is not marked."`
	LevelBy      *LoggedEvent     `json:"level_by,omitempty" doc:"The event that set the conversation's own level; absent if it has none."`
	Applies      string           `json:"applies" enum:"all,mentions,direct_mentions,none" doc:"The level that applies to the conversation."`
	LevelOf      string           `json:"level_of,omitempty" doc:"The category whose level applies; absent if the conversation has a level of its own, or if no category that covers it has one."`
}

// CountedMessage is an unread message and the event that first delivered it.
type CountedMessage struct {
	Seq       int64 `json:"seq" minimum:"1" doc:"The position of the message in its conversation: a later message has a greater seq."`
	Mentioned bool  `json:"mentioned" doc:"Whether the message mentions the user."`
	LoggedEvent
}

// ReadEvent is an event that moved a read position.
type ReadEvent struct {
	UpToSeq int64 `json:"up_to_seq" minimum:"0" doc:"The read position that the event set."`
	LoggedEvent
}

// UncountedEvent is an event that changed no count.
type UncountedEvent struct {
	LoggedEvent
	ConversationID string `json:"conversation_id,omitempty" doc:"The conversation of the event, if it has one."`
	Seq            int64  `json:"seq,omitempty" minimum:"1" doc:"The seq or up_to_seq of the event, if it has one."`
	Why            Why    `json:"why" enum:"duplicate,dead_letter,own_message,already_read,recalled,already_delivered,not_delivered,already_marked,left,same_level,same_state,nothing_unread,already_member,no_member" doc:"The reason."`
	Detail         string `json:"detail" doc:"The reason, as a sentence."`
}

// Why is the reason why an event changed no count. It is a reason that the fold returns, or one of
// the reasons below for which an event is not folded.
type Why = badge.Why

// The reasons why an event is not folded.
const (
	WhyDuplicate  Why = "duplicate"   // an event with the same source and id came earlier
	WhyDeadLetter Why = "dead_letter" // the event cannot be decoded
)
