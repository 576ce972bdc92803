// Package events is what happens to unread counts: the events that chat
// backends publish, and the Postgres log that keeps them.
//
// An [Event] is a CloudEvents 1.0 JSON object. [Decode] and [Event.Validate]
// accept exactly the events that the projector can fold; everything else is
// refused with the fields at fault. [Log] appends events to one watermill-sql
// topic per partition and reads them back in the order in which they became
// visible.
package events

import "time"

// SpecVersion is the CloudEvents version of every event.
const SpecVersion = "1.0"

// Type says what an event means; it decides which fields its data has.
type Type string

// The event types. Delivered, Read and Recalled commute and are idempotent:
// any order and any repetition of them gives the same counts. The others
// apply in log order.
const (
	// MessageDelivered puts message Seq into the unread set of each user,
	// unless it is at or below the read position or recalled.
	MessageDelivered Type = "message.delivered"
	// ConversationRead moves the read position of each user up to UpToSeq.
	ConversationRead Type = "conversation.read"
	// MessageRecalled takes message Seq out of the unread set for good, also
	// when the recall comes before the delivery.
	MessageRecalled Type = "message.recalled"
	// ConversationMarkedUnread makes the conversation count at least 1 until
	// the next read.
	ConversationMarkedUnread Type = "conversation.marked_unread"
	// ConversationLevelSet changes what the conversation adds to the total.
	ConversationLevelSet Type = "conversation.level_set"
	// ConversationLeft reads the conversation up to its last delivered message
	// and takes it out of every list until a later delivery.
	ConversationLeft Type = "conversation.left"
	// UserReadAll reads every conversation, or every one of Category, up to
	// its last delivered message.
	UserReadAll Type = "user.read_all"
	// ConversationExpired is a read that the product's own expiry sweep wrote.
	ConversationExpired Type = "conversation.expired"
)

// Level says what a conversation adds to its user's total.
type Level string

// The levels.
const (
	LevelAll      Level = "all"      // its unread messages; the default
	LevelMentions Level = "mentions" // its unread mentions
	LevelNone     Level = "none"     // nothing
)

// DefaultCategory is the category of messages that name none.
const DefaultCategory = "chat"

// Event is one thing that happened, in the envelope of CloudEvents 1.0.
// Source and ID together name it: an event whose name is in the log already
// changes nothing when it comes again.
type Event struct {
	// ID is unique within Source: 1–256 bytes.
	ID string
	// Source names the publisher: 1–256 bytes, by convention a URI reference.
	Source string
	Type   Type
	// Time is when it happened. It is for people: no count depends on it. An
	// event published without one gets the time at which it was accepted.
	Time time.Time
	// TraceParent and TraceState are the W3C trace context of the publisher,
	// empty where there is none.
	TraceParent string
	TraceState  string
	// AppendedAt is when the log took the event, by the clock of its database:
	// set where an event is folded, and no part of what is published.
	AppendedAt time.Time

	Data Data
}

// Data is what an event says. Which fields an event must and may have is a
// matter of its type, which [Types] tells; the others are zero. Events are
// decoded and encoded by code of their own: the tags only describe.
type Data struct {
	ConversationID   string   `json:"conversation_id" minLength:"1" maxLength:"128" doc:"The conversation."`
	UserIDs          []string `json:"user_ids" minItems:"1" maxItems:"10000" minLength:"1" maxLength:"128" doc:"The users on whom the event has an effect."`
	Seq              int64    `json:"seq" minimum:"1" doc:"The position of the message in its conversation."`
	UpToSeq          int64    `json:"up_to_seq" minimum:"1" doc:"The last message read."`
	MentionedUserIDs []string `json:"mentioned_user_ids" maxItems:"10000" minLength:"1" maxLength:"128" doc:"Those of user_ids whom the message mentions."`
	// Category is empty for DefaultCategory where the type is MessageDelivered,
	// and for every category where it is UserReadAll.
	Category  string `json:"category" minLength:"1" maxLength:"64" doc:"The label of the conversation: chat if a message has none; every one if a user reads all."`
	MessageID string `json:"message_id" minLength:"1" maxLength:"128" doc:"The chat backend's own id of the message, for people."`
	SenderID  string `json:"sender_id" minLength:"1" maxLength:"128" doc:"Who sent the message; skipped where it is among user_ids, so that nobody's own message counts."`
	Level     Level  `json:"level" enum:"all,mentions,none" doc:"What the conversation adds to the total: its unread messages, those that mention the user, or nothing."`
}

// Limits of what an event may hold. IDs of users, conversations, messages and
// senders are UTF-8 without control characters.
const (
	MaxIDBytes       = 128    // of a user, conversation, message or sender id
	MaxNameBytes     = 256    // of an event's id and of its source
	MaxCategoryBytes = 64     // of a category
	MaxUsers         = 10_000 // in one event
	MaxTraceBytes    = 512    // of traceparent and of tracestate
)
