// Package events defines the events that change unread counts, and the Postgres log that
// stores them.
//
// Use [Publish] to append events in your own transaction. An [Event] is a CloudEvents 1.0 JSON
// object. [Decode] and [Event.Validate] accept exactly the events that the projector can fold,
// and report every invalid field. Package topics subscribes to events, in the order in which
// they were folded.
//
// The package does not know the projector, the gateway or HTTP, so that a chat backend can
// import it without them. ADR 3 says why decoding is strict.
package events

import (
	"time"

	"github.com/badged/badged/internal/base/category"
)

// SpecVersion is the CloudEvents version of every event.
const SpecVersion = "1.0"

// ContentType is the media type of an event.
const ContentType = "application/cloudevents+json"

// Type is the type of an event. It determines the fields of its data; see [Types].
type Type string

// The event types. MessageDelivered, MessageRecalled, RoomPosted, RoomRecalled and
// ConversationRead commute and are idempotent: the counts do not depend on their order or on
// repetitions. The other types apply in log order.
const (
	// MessageDelivered adds message Seq to the unread set of each user, unless the message is
	// at or below the read position or recalled.
	MessageDelivered Type = "message.delivered"
	// ConversationRead moves the read position of each user up to UpToSeq.
	ConversationRead Type = "conversation.read"
	// MessageRecalled removes message Seq from the unread set, also if the recall comes before the
	// delivery. Only a MessageChanged or ConversationReset can make the message unread again.
	MessageRecalled Type = "message.recalled"
	// MessageChanged gives message Seq the content of the event: the message counts again if it was
	// recalled, and mentions exactly MentionedUserIDs. If several changes and recalls of a message
	// have a Revision, the event with the greatest Revision applies, whatever their order in the
	// log.
	MessageChanged Type = "message.changed"
	// ConversationMarkedUnread makes the conversation count at least 1 until the next read. If Seqs
	// is set, the messages in Seqs count again instead, until the next read. If FromSeq is set, all
	// messages of a room at or above FromSeq count again until the next read.
	ConversationMarkedUnread Type = "conversation.marked_unread"
	// ConversationReset replaces the state of the conversation: it is read up to UpToSeq, the
	// messages in Seqs are unread, and badged deletes what it stores about other messages. For a
	// member of a room, Seqs is ignored: all messages above UpToSeq are unread.
	ConversationReset Type = "conversation.reset"
	// ConversationSeen moves the seen position of each user up to UpToSeq.
	ConversationSeen Type = "conversation.seen"
	// ConversationLevelSet changes what the conversation adds to the total. With Until, the
	// change lasts until that time.
	ConversationLevelSet Type = "conversation.level_set"
	// ConversationLeft reads the conversation up to its last delivered message, or up to UpToSeq if
	// that is greater. It removes the conversation from every list until a message with a greater
	// seq is delivered.
	ConversationLeft Type = "conversation.left"
	// CategoryLevelSet sets the level of all present and future conversations that Category
	// covers and that have no level of their own.
	CategoryLevelSet Type = "category.level_set"
	// UserReadAll reads every conversation, or every conversation that Category covers, up to
	// its last delivered message.
	UserReadAll Type = "user.read_all"
	// UserSeenAll moves the seen position of every conversation, or of every conversation that
	// Category covers, up to its last delivered message.
	UserSeenAll Type = "user.seen_all"
	// UserLeftAll is a ConversationLeft for every conversation that Category covers, and a
	// RoomLeft for every room that Category covers.
	UserLeftAll Type = "user.left_all"
	// RoomJoined makes each user a member of the room. The read position of the new members is
	// UpToSeq, or the last message of the room if UpToSeq is 0.
	RoomJoined Type = "room.joined"
	// RoomLeft ends the membership of each user. Their unread messages in the room are
	// removed.
	RoomLeft Type = "room.left"
	// RoomPosted is message Seq of the room, for all its members. It names no users and goes
	// to every partition.
	RoomPosted Type = "room.posted"
	// RoomRecalled removes message Seq of the room for every member, also if the recall comes
	// before the message. Only a RoomChanged or RoomReset can restore the message.
	RoomRecalled Type = "room.recalled"
	// RoomChanged gives message Seq of the room the content of the event, as MessageChanged
	// does.
	RoomChanged Type = "room.changed"
	// RoomReset removes the messages of the room above Seq, or all messages if Seq is 0. Later
	// messages may use the seqs of the removed messages again. If the read position of a member is
	// below UpToSeq, it becomes UpToSeq.
	RoomReset Type = "room.reset"
	// ConversationExpired marks a conversation as read. Only badged writes it, when a conversation
	// has had no new message for the configured time.
	ConversationExpired Type = "conversation.expired"
	// ConversationLevelEnded removes a level that was set with an end, if this end is at or before
	// Until. Only badged writes the event, after Until has passed.
	ConversationLevelEnded Type = "conversation.level_ended"
)

// Level is what a conversation adds to its user's total.
type Level string

// The levels.
const (
	// LevelDefault removes the level of a conversation. Then the level of its category applies, or
	// LevelAll if the category has no level.
	LevelDefault  Level = "default"
	LevelAll      Level = "all"      // the conversation adds its unread messages
	LevelMentions Level = "mentions" // the conversation adds its unread mentions
	// LevelDirectMentions adds the unread messages that mention the user by name. Messages that
	// mention all members of a room do not count.
	LevelDirectMentions Level = "direct_mentions"
	LevelNone           Level = "none" // the conversation adds nothing
)

// DefaultCategory is the category of messages that name no category.
const DefaultCategory = "chat"

// Event is an event in the envelope of CloudEvents 1.0. Source and ID together identify an event: a
// second event with the same Source and ID changes nothing.
type Event struct {
	// ID is unique within Source: 1–256 bytes.
	ID string
	// Source names the publisher: 1–256 bytes, by convention a URI reference.
	Source string
	Type   Type
	// Time is when the event happened. It is only for information: no count depends on it. The
	// default is the time at which the event is appended.
	Time time.Time
	// TraceParent and TraceState are the W3C trace context of the publisher, or empty.
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

// Data is the data of an event. [Types] lists the required and optional fields of each type; all
// other fields must be zero. The tags describe the fields. Decoding, validation in Go and SQL, and
// the reference documentation are derived from the tags.
type Data struct {
	ConversationID string   `json:"conversation_id" minLength:"1" maxLength:"128" doc:"The conversation."`
	UserIDs        []string `json:"user_ids" minItems:"1" maxItems:"10000" minLength:"1" maxLength:"128" doc:"The users that the event affects."`
	Seq            int64    `json:"seq" minimum:"1" doc:"The position of the message in its conversation: a later message has a greater seq. A string of its digits is accepted, too."`
	UpToSeq        int64    `json:"up_to_seq" minimum:"1" doc:"The seq of the last message that is read."`
	// Seqs, in a ConversationMarkedUnread, are messages that the user has read.
	Seqs []int64 `json:"seqs" minItems:"1" maxItems:"1000" minimum:"1" doc:"The seqs of messages that the user has read and that count as unread again."`
	// Revision orders the changes of a message. Changes without a Revision apply in the order of
	// the log.
	Revision int64 `json:"revision" minimum:"1" doc:"A number that is greater for each change of the message, such as the time of the change in milliseconds. The change or recall with the greatest revision applies, in whatever order they come. Changes and recalls without a revision apply in the order of the log."`
	// FromSeq is only for members of rooms.
	FromSeq          int64    `json:"from_seq" minimum:"1" doc:"The seq of a message in a room: this message and all later messages count as unread again."`
	MentionedUserIDs []string `json:"mentioned_user_ids" maxItems:"10000" minLength:"1" maxLength:"128" among:"user_ids" doc:"The users that the message mentions. They must be in user_ids too."`
	MentionsAll      bool     `json:"mentions_all" doc:"The message mentions every member of the room."`
	// Category, if empty, means DefaultCategory in a MessageDelivered or RoomPosted. A
	// UserReadAll or UserSeenAll needs either Category or AllCategories.
	Category string `json:"category" minLength:"1" maxLength:"255" path:"true" doc:"The category of the conversation, by default chat. It is a path of one to eight parts, separated by slashes; each part has 1 to 64 characters."`
	// AllCategories makes a UserReadAll or UserSeenAll apply to every category; the JSON of such an
	// event has no category. In Go, an empty Category alone is invalid: otherwise a variable that
	// is empty by mistake would mark everything as read.
	AllCategories bool   `json:"-"`
	MessageID     string `json:"message_id" minLength:"1" maxLength:"128" doc:"The id that the chat backend gave the message, for information."`
	SenderID      string `json:"sender_id" minLength:"1" maxLength:"128" doc:"The sender of the message. It does not count for the sender."`
	Level         Level  `json:"level" enum:"default,all,mentions,direct_mentions,none" doc:"What the conversation adds to the total. default: the level of its category applies; all: its unread messages; mentions: unread messages that mention the user; direct_mentions: unread messages that mention the user by name; none: nothing."`
	// Until has microseconds; smaller fractions are cut off.
	Until time.Time `json:"until" format:"date-time" doc:"When the level ends, in RFC 3339. Within about ten seconds after that time, the last level that was set without until applies again. By default the level does not end."`
	// Notification is pushed to the devices of users who have not read the message.
	Notification Notification `json:"notification" doc:"What a push shows on the devices of users who have not read the message, beside their new number. It has title and body, together at most 2048 bytes and not both empty, and optionally data, an object of strings of at most 1024 bytes together."`
	ByApp        bool         `json:"by_app" doc:"The event comes from an app, which is not trusted: a read covers only messages delivered before it or within the next minute."`
}

// Notifies reports whether the message has a notification to push.
func (d *Data) Notifies() bool { return d.Notification.Title+d.Notification.Body != "" }

// Notification is the text that a push shows for a message, and data for the app.
type Notification struct {
	Title string `json:"title,omitempty" doc:"The first line of the alert."`
	Body  string `json:"body,omitempty" doc:"The text of the alert."`
	// Data is for the app.
	Data map[string]string `json:"data,omitempty" doc:"Data for the app, which the push carries."`
}

// Limits of events. Names and ids are UTF-8 without control characters.
const (
	MaxIDBytes       = 128 // the id of a user, conversation, message or sender
	MaxNameBytes     = 256 // the id of an event, and the source of an event
	MaxCategoryBytes = category.MaxBytes
	MaxUsers         = 10_000 // in one event
	MaxSeqs          = 1000   // in one event
	MaxTraceBytes    = 512    // of traceparent and of tracestate
	// MaxNotificationBytes limits the title and body of a notification together.
	// MaxNotificationDataBytes limits all keys and values of its data together. With these limits,
	// a push with the notification and the badge number fits into 4 KiB.
	MaxNotificationBytes     = 2048
	MaxNotificationDataBytes = 1024
)
