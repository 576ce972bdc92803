// Package events defines the events that change unread counts, and the Postgres log
// that stores them.
//
// Use [Publish] to append events in your own transaction. An [Event] is a
// CloudEvents 1.0 JSON object. [Decode] and [Event.Validate] accept exactly the
// events that the projector can fold, and report every field at fault. Package topics
// subscribes to them, in the order in which they were folded.
//
// It does not know the projector, the gateway or HTTP: a chat backend links it alone.
// ADR 3 says why decoding is strict.
package events

import (
	"time"

	"github.com/badged/badged/internal/category"
)

// SpecVersion is the CloudEvents version of every event.
const SpecVersion = "1.0"

// ContentType is the media type of an event.
const ContentType = "application/cloudevents+json"

// Type is the type of an event. It determines the fields of its data; see [Types].
type Type string

// The event types. MessageDelivered, MessageRecalled, RoomPosted, RoomRecalled and
// ConversationRead commute and are idempotent: any order and any repetition of them
// gives the same counts. The others apply in log order.
const (
	// MessageDelivered puts message Seq into the unread set of each user,
	// unless it is at or below the read position or recalled.
	MessageDelivered Type = "message.delivered"
	// ConversationRead moves the read position of each user up to UpToSeq.
	ConversationRead Type = "conversation.read"
	// MessageRecalled removes message Seq from the unread set permanently, even
	// if the recall comes before the delivery.
	MessageRecalled Type = "message.recalled"
	// MessageChanged makes message Seq what the event says: it counts again if it was
	// recalled, and mentions exactly MentionedUserIDs. Of several changes and recalls with
	// a Revision the greatest applies, in any order.
	MessageChanged Type = "message.changed"
	// ConversationMarkedUnread makes the conversation count at least 1 until
	// the next read. With Seqs, these messages count again until then; with FromSeq,
	// those of a room from there on.
	ConversationMarkedUnread Type = "conversation.marked_unread"
	// ConversationReset makes the conversation what the publisher says, whatever came
	// before: read up to UpToSeq, with Seqs unread, and no message known besides. The
	// member of a room has all messages above UpToSeq unread instead.
	ConversationReset Type = "conversation.reset"
	// ConversationSeen moves the seen position of each user up to UpToSeq.
	ConversationSeen Type = "conversation.seen"
	// ConversationLevelSet changes what the conversation adds to the total, with Until for
	// the time until then.
	ConversationLevelSet Type = "conversation.level_set"
	// ConversationLeft reads the conversation up to its last delivered message,
	// or up to UpToSeq if that is greater, and takes it out of every list until
	// a message with a greater seq is delivered.
	ConversationLeft Type = "conversation.left"
	// CategoryLevelSet sets the level of the conversations that Category covers and that
	// have none of their own, also of those to come.
	CategoryLevelSet Type = "category.level_set"
	// UserReadAll reads every conversation, or every one that Category covers, up to
	// its last delivered message.
	UserReadAll Type = "user.read_all"
	// UserSeenAll is a ConversationSeen of the same conversations.
	UserSeenAll Type = "user.seen_all"
	// UserLeftAll is a ConversationLeft, or RoomLeft, of every conversation that Category
	// covers.
	UserLeftAll Type = "user.left_all"
	// RoomJoined makes each user a member of the room, who has read it up to
	// UpToSeq, or else up to its last message.
	RoomJoined Type = "room.joined"
	// RoomLeft ends the membership of each user. What was unread there is gone.
	RoomLeft Type = "room.left"
	// RoomPosted is message Seq of the room, for everyone who is a member. It names
	// no users and goes to every partition.
	RoomPosted Type = "room.posted"
	// RoomRecalled removes message Seq of the room for every member permanently,
	// even if the recall comes before the message.
	RoomRecalled Type = "room.recalled"
	// RoomChanged makes message Seq of the room what the event says, as MessageChanged does.
	RoomChanged Type = "room.changed"
	// RoomReset ends the room at Seq, or empties it, for every member: messages above
	// Seq never were, and their seqs may be used again. Each member has read at least up
	// to UpToSeq.
	RoomReset Type = "room.reset"
	// ConversationExpired is a read that the product's own expiry sweep wrote.
	ConversationExpired Type = "conversation.expired"
	// ConversationLevelEnded ends levels that were set until Until or earlier. The
	// product's own sweep writes it once that time has come.
	ConversationLevelEnded Type = "conversation.level_ended"
)

// Level is what a conversation adds to its user's total.
type Level string

// The levels.
const (
	// LevelDefault is that of its category, or else LevelAll.
	LevelDefault  Level = "default"
	LevelAll      Level = "all"      // its unread messages
	LevelMentions Level = "mentions" // its unread mentions
	// LevelDirectMentions is LevelMentions without messages to a room that mention all
	// members and not the user by name.
	LevelDirectMentions Level = "direct_mentions"
	LevelNone           Level = "none" // nothing
)

// CountsMentions reports whether a conversation adds its mentions only.
func (l Level) CountsMentions() bool { return l == LevelMentions || l == LevelDirectMentions }

// DefaultCategory is the category of messages without one.
const DefaultCategory = "chat"

// Event is an event in the envelope of CloudEvents 1.0. Source and ID together are
// its idempotency key: a repeated event changes nothing.
type Event struct {
	// ID is unique within Source: 1–256 bytes.
	ID string
	// Source names the publisher: 1–256 bytes, by convention a URI reference.
	Source string
	Type   Type
	// Time is when it happened, for people: no count depends on it. Default: when
	// the event is appended.
	Time time.Time
	// TraceParent and TraceState are the W3C trace context of the publisher, or
	// empty.
	TraceParent string
	TraceState  string
	// PublishedBy is the name of the key with which the event was published over HTTP,
	// or empty. Publishers cannot set it.
	PublishedBy string
	// AppendedAt is when the event was appended, by the clock of the database. It
	// is set when an event is folded, and ignored when it is published.
	AppendedAt time.Time

	Data Data
}

// Data is the data of an event. [Types] lists the required and optional fields of
// each type; all others must be zero. The tags describe the fields: what is
// decoded and accepted, in Go and SQL, and the reference follow from them.
type Data struct {
	ConversationID string   `json:"conversation_id" minLength:"1" maxLength:"128" doc:"The conversation."`
	UserIDs        []string `json:"user_ids" minItems:"1" maxItems:"10000" minLength:"1" maxLength:"128" doc:"The users that the event affects."`
	Seq            int64    `json:"seq" minimum:"1" doc:"The position of the message in its conversation."`
	UpToSeq        int64    `json:"up_to_seq" minimum:"1" doc:"The last message that is read."`
	// Seqs, in a ConversationMarkedUnread, are messages that the user has read.
	Seqs []int64 `json:"seqs" minItems:"1" maxItems:"1000" minimum:"1" doc:"Messages that the user has read and that count again."`
	// Revision orders the changes of a message. Without one, a change applies in the order
	// of the log.
	Revision int64 `json:"revision" minimum:"1" doc:"The number of the change of the message, greater than those of earlier changes, such as its time in milliseconds. Of changes and recalls with a revision the greatest applies, in whatever order they come; without one, they apply in the order of the log."`
	// FromSeq is for members of rooms.
	FromSeq          int64    `json:"from_seq" minimum:"1" doc:"The first message of a room that counts again."`
	MentionedUserIDs []string `json:"mentioned_user_ids" maxItems:"10000" minLength:"1" maxLength:"128" among:"user_ids" doc:"The users that the message mentions, of user_ids."`
	MentionsAll      bool     `json:"mentions_all" doc:"The message mentions every member of the room."`
	// Category, if empty, means DefaultCategory in a MessageDelivered or RoomPosted. A
	// UserReadAll or UserSeenAll has either a category or AllCategories.
	Category string `json:"category" minLength:"1" maxLength:"255" path:"true" doc:"The category of the conversation, by default chat: a path of one to eight parts with slashes in between, each of 1 to 64 characters."`
	// AllCategories is set in a UserReadAll or UserSeenAll of every category, which has no category in
	// JSON. In Go an empty Category does not suffice: a variable that was not set must not
	// read everything.
	AllCategories bool   `json:"-"`
	MessageID     string `json:"message_id" minLength:"1" maxLength:"128" doc:"The chat backend's own id of the message, for information."`
	SenderID      string `json:"sender_id" minLength:"1" maxLength:"128" doc:"The sender of the message. It does not count for the sender."`
	Level         Level  `json:"level" enum:"default,all,mentions,direct_mentions,none" doc:"What the conversation adds to the total: what its category says, its unread messages, those that mention the user, those that mention the user by name, or nothing."`
	// Until is in microseconds: the rest is cut off.
	Until time.Time `json:"until" format:"date-time" doc:"When the level ends, in RFC 3339: within a minute of that time the conversation has the level before again. By default it does not end."`
	// Notification is pushed to the devices of users who have not read the message.
	Notification Notification `json:"notification" doc:"What is pushed to the devices of users who have not read the message, with their new number: title and body, at most 2048 bytes together and not both empty, and optionally data, an object of strings of at most 1024 bytes."`
	ByApp        bool         `json:"by_app" doc:"The event comes from an app, which is not trusted: a read covers only messages delivered by then or within the next minute."`
}

// Notifies reports whether a message has a notification.
func (d *Data) Notifies() bool { return d.Notification.Title+d.Notification.Body != "" }

// Notification is what a push shows of a message, or gives to the app.
type Notification struct {
	Title string `json:"title,omitempty" doc:"The first line."`
	Body  string `json:"body,omitempty" doc:"The text."`
	// Data is for the app.
	Data map[string]string `json:"data,omitempty" doc:"For the app."`
}

// Limits of what an event may hold. IDs of users, conversations, messages and
// senders are UTF-8 without control characters.
const (
	MaxIDBytes       = 128 // of a user, conversation, message or sender id
	MaxNameBytes     = 256 // of an event's id and of its source
	MaxCategoryBytes = category.MaxBytes
	MaxUsers         = 10_000 // in one event
	MaxSeqs          = 1000   // in one event
	MaxTraceBytes    = 512    // of traceparent and of tracestate
	// Of a notification, which must fit into 4 KiB with the number: title and body
	// together, and the keys and values of its data.
	MaxNotificationBytes     = 2048
	MaxNotificationDataBytes = 1024
)
