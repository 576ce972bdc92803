package events

import "time"

// TypeInfo describes a type of event.
type TypeInfo struct {
	Type Type
	// Does says what the event changes for each user of the event, or for each member of a room.
	Does string
	// Example is an example of the event.
	Example Event
	// Required and Optional are the JSON names of the fields of data.
	Required, Optional []string
	// Means describes the fields that have another meaning in this type than the doc tags of [Data]
	// say. The keys are the JSON names of the fields.
	Means map[string]string
	// Reserved is true if only badged may write the event: [Publish] rejects it.
	Reserved bool
}

// Types describes every type of event.
func Types() []TypeInfo {
	ada := []string{"ada"}
	types := []TypeInfo{
		{
			Type: MessageDelivered, Does: "The message becomes unread, unless it is at or below the read position or was recalled.",
			Required: []string{"conversation_id", "user_ids", "seq"}, Optional: []string{"mentioned_user_ids", "category", "message_id", "sender_id", "notification"},
			Example: Event{ID: "design-crew/42", Data: Data{
				ConversationID: "design-crew", Seq: 42, UserIDs: []string{"ada", "chloe"}, SenderID: "ben", MentionedUserIDs: ada,
				Notification: Notification{Title: "Ben", Body: "Lunch?"},
			}},
		},
		{
			Type: ConversationRead, Does: "The read position moves up to up_to_seq; it never moves back. A mark ends, unless up_to_seq is below the read position. With by_app, the read covers only messages delivered before it or within the next minute.",
			Required: []string{"conversation_id", "user_ids", "up_to_seq"}, Optional: []string{"by_app"},
			Example: Event{ID: "design-crew/read/ada/42", Data: Data{ConversationID: "design-crew", UserIDs: ada, UpToSeq: 42}},
		},
		{
			Type: MessageRecalled, Does: "The message is not unread any more. Only message.changed can make it unread again: a delivery cannot, even if it comes after the recall.",
			Required: []string{"conversation_id", "user_ids", "seq"}, Optional: []string{"revision"},
			Example: Event{ID: "design-crew/42/recalled", Data: Data{ConversationID: "design-crew", Seq: 42, UserIDs: []string{"ada", "chloe"}}},
		},
		{
			Type: MessageChanged, Does: "The message is delivered as this event says, even if it was recalled: it is unread, unless it is at or below the read position, and it mentions exactly mentioned_user_ids. Nothing changes if a change or recall of the message with the same or a greater revision came before.",
			Required: []string{"conversation_id", "user_ids", "seq"}, Optional: []string{"mentioned_user_ids", "revision", "category", "message_id", "sender_id"},
			Example: Event{ID: "design-crew/42/edited/2", Data: Data{
				ConversationID: "design-crew", Seq: 42, UserIDs: []string{"ada", "chloe"}, SenderID: "ben", MentionedUserIDs: []string{"chloe"}, Revision: 2,
			}},
		},
		{
			Type: ConversationMarkedUnread, Does: "The conversation counts at least 1 until a read up to the read position or further. With seqs, these messages count again instead, until that read; recalled messages do not. With from_seq, this message and all later messages of a room count again, except the user's own messages and messages from before the user joined. To mark messages, give from_seq for a room, and seqs for another conversation. With both, from_seq applies to the members of the room, and seqs to the other users of the event.",
			Required: []string{"conversation_id", "user_ids"}, Optional: []string{"seqs", "from_seq"},
			Example: Event{ID: "design-crew/unread/ada/1", Data: Data{ConversationID: "design-crew", UserIDs: ada}},
		},
		{
			Type: ConversationReset, Does: "Replaces what is read and unread, whatever was delivered, read or recalled before. The read position becomes up_to_seq, which may be lower than before, and exactly the messages in seqs are unread: later messages may use the seqs of earlier messages. Unread messages at or below up_to_seq count until the next read. Membership, level, category and a mark of the conversation do not change; the category changes with the next message that has a greater seq. For a member of a room, all messages above up_to_seq are unread, except the user's own messages, and seqs are ignored.",
			Required: []string{"conversation_id", "user_ids"}, Optional: []string{"up_to_seq", "seqs"},
			Means:   map[string]string{"up_to_seq": "The seq of the last message that is read, by default none.", "seqs": "The seqs of the messages that are unread, by default none."},
			Example: Event{ID: "design-crew/reset/ada/1", Data: Data{ConversationID: "design-crew", UserIDs: ada, UpToSeq: 40, Seqs: []int64{41, 42}}},
		},
		{
			Type: ConversationSeen, Does: "The seen position moves up to up_to_seq; it never moves back. Unread messages up to the seen position are not unseen any more. A read moves the seen position too. With by_app, the event covers only messages delivered before it.",
			Required: []string{"conversation_id", "user_ids", "up_to_seq"}, Optional: []string{"by_app"},
			Means:   map[string]string{"up_to_seq": "The seq of the last message that the user has seen."},
			Example: Event{ID: "design-crew/seen/ada/42", Data: Data{ConversationID: "design-crew", UserIDs: ada, UpToSeq: 42}},
		},
		{
			Type: ConversationLevelSet, Does: "Sets the level of the conversation: what it adds to the total. The level applies until the next level_set. With until, it also ends at that time; then the last level that was set without until applies again. The level default removes the level: then the level of the longest category applies that covers the conversation and has a level; if there is none, all.",
			Required: []string{"conversation_id", "user_ids", "level"}, Optional: []string{"until"},
			Example: Event{ID: "design-crew/level/ada/1", Data: Data{ConversationID: "design-crew", UserIDs: ada, Level: LevelMentions}},
		},
		{
			Type: ConversationLeft, Does: "The conversation is read up to its last delivered message, or up to up_to_seq if that is greater. It is removed from every list until a message with a greater seq is delivered.",
			Required: []string{"conversation_id", "user_ids"}, Optional: []string{"up_to_seq"},
			Means:   map[string]string{"up_to_seq": "The seq of the last message whose delivery does not restore the conversation, by default the last delivered message."},
			Example: Event{ID: "design-crew/left/ada/1", Data: Data{ConversationID: "design-crew", UserIDs: ada, UpToSeq: 42}},
		},
		{
			Type: CategoryLevelSet, Does: "Sets the level of a category. The level applies to all conversations, present and future, that the category covers and that have no level of their own. If several categories that cover a conversation have levels, the level of the longest category applies. The level default removes the level. With by_app, a level of a further category changes nothing if 500 categories of the user have levels already.",
			Required: []string{"user_ids", "category", "level"}, Optional: []string{"by_app"},
			Means:   map[string]string{"category": "The category. It covers its own conversations, and the conversations of all categories whose name begins with it and a slash.", "level": "What the conversations that the category covers add to the total."},
			Example: Event{ID: "level/ada/acme/1", Data: Data{UserIDs: ada, Category: "acme", Level: LevelNone}},
		},
		{
			Type: UserReadAll, Does: "All conversations, or all conversations that a category covers, are read up to their last delivered message.",
			Required: []string{"user_ids"}, Optional: []string{"category"},
			Means:   map[string]string{"category": "The category: only conversations that it covers are concerned. By default all conversations."},
			Example: Event{ID: "read-all/ada/1", Data: Data{UserIDs: ada, Category: "likes"}},
		},
		{
			Type: UserSeenAll, Does: "All conversations, or all conversations that a category covers, are seen up to their last delivered message.",
			Required: []string{"user_ids"}, Optional: []string{"category"},
			Means:   map[string]string{"category": "The category: only conversations that it covers are concerned. By default all conversations."},
			Example: Event{ID: "seen-all/ada/1", Data: Data{UserIDs: ada, Category: "likes"}},
		},
		{
			Type: UserLeftAll, Does: "The users leave every conversation that a category covers, as by conversation.left, and every room that it covers, as by room.left.",
			Required: []string{"user_ids", "category"},
			Means:    map[string]string{"category": "The category: the users leave all conversations that it covers."},
			Example:  Event{ID: "left-all/ada/acme/1", Data: Data{UserIDs: ada, Category: "acme"}},
		},
		{
			Type: RoomJoined, Does: "The users become members of the room. Their read position is up_to_seq, by default the last message of the room. Nothing changes for users who are members already.",
			Required: []string{"conversation_id", "user_ids"}, Optional: []string{"up_to_seq", "level"},
			Means:   map[string]string{"up_to_seq": "The seq of the last message that is read, by default the last message of the room."},
			Example: Event{ID: "town-hall/joined/ada/1", Data: Data{ConversationID: "town-hall", UserIDs: []string{"ada", "chloe"}}},
		},
		{
			Type: RoomLeft, Does: "The users stop being members of the room, and the room has no unread messages for them any more. Nothing changes for users who are not members.",
			Required: []string{"conversation_id", "user_ids"},
			Example:  Event{ID: "town-hall/left/ada/1", Data: Data{ConversationID: "town-hall", UserIDs: ada}},
		},
		{
			Type: RoomPosted, Does: "The message becomes unread for every member of the room except its sender, unless it is at or below the member's read position or was recalled. It does not count for users who are not members.",
			Required: []string{"conversation_id", "seq"}, Optional: []string{"mentioned_user_ids", "mentions_all", "category", "message_id", "sender_id", "notification"},
			Means:   map[string]string{"mentioned_user_ids": "The users that the message mentions. Users who are not members of the room are ignored."},
			Example: Event{ID: "town-hall/7", Data: Data{ConversationID: "town-hall", Seq: 7, SenderID: "ben", MentionedUserIDs: ada}},
		},
		{
			Type: RoomRecalled, Does: "The message is not unread any more for any member of the room. Only room.changed can make it unread again: room.posted cannot, even if it comes after the recall.",
			Required: []string{"conversation_id", "seq"}, Optional: []string{"revision"},
			Example: Event{ID: "town-hall/7/recalled", Data: Data{ConversationID: "town-hall", Seq: 7}},
		},
		{
			Type: RoomChanged, Does: "The message is posted as this event says, even if it was recalled: it is unread for the members whose read position is below it, except its sender, and it mentions exactly mentioned_user_ids, or all members. Nothing changes if a change or recall of the message with the same or a greater revision came before.",
			Required: []string{"conversation_id", "seq"}, Optional: []string{"mentioned_user_ids", "mentions_all", "revision", "category", "message_id", "sender_id"},
			Means:   map[string]string{"mentioned_user_ids": "The users that the message mentions. Users who are not members of the room are ignored."},
			Example: Event{ID: "town-hall/7/edited/2", Data: Data{ConversationID: "town-hall", Seq: 7, SenderID: "ben", Revision: 2}},
		},
		{
			Type: RoomReset, Does: "The last message of the room becomes seq, by default none. Messages above seq, recalled or not, are deleted, and later messages may use their seqs. The read position of every member becomes at most seq and at least up_to_seq. If up_to_seq is greater than seq, later messages up to it are read. Levels and marks do not change, except that marked messages up to up_to_seq are read. The category changes with the next message that has a greater seq. If one of the last resets of a room is repeated with the same source and id, nothing changes.",
			Required: []string{"conversation_id"}, Optional: []string{"seq", "up_to_seq"},
			Means:   map[string]string{"seq": "The seq of the last message of the room, by default none.", "up_to_seq": "The least read position of every member."},
			Example: Event{ID: "town-hall/truncated/1", Data: Data{ConversationID: "town-hall"}},
		},
		{
			Type: ConversationExpired, Does: "Reads a conversation up to its last delivered message, since it had no new messages for longer than --expire permits.", Reserved: true,
			Required: []string{"conversation_id", "user_ids", "up_to_seq"},
			Example:  Event{ID: "design-crew/expired/ada/42", Data: Data{ConversationID: "design-crew", UserIDs: ada, UpToSeq: 42}},
		},
		{
			Type: ConversationLevelEnded, Does: "Ends the level of a conversation that was set with until, after that time has passed.", Reserved: true,
			Required: []string{"conversation_id", "user_ids", "until"},
			Means:    map[string]string{"until": "The time that has passed: the level ends if its until is this time or earlier."},
			Example: Event{ID: "design-crew/level/ada/ended/1", Data: Data{
				ConversationID: "design-crew", UserIDs: ada, Until: time.Date(2026, time.March, 1, 8, 0, 0, 0, time.UTC),
			}},
		},
	}
	for i := range types {
		types[i].Example.Source, types[i].Example.Type = "chat", types[i].Type
	}
	return types
}

// typeRule says which fields the data of a type must have (required), and which fields it may
// have (allowed, which includes the required fields).
type typeRule struct {
	eventType         Type
	required, allowed fields
	reserved          bool
}

var typeRules = func() (rules []typeRule) {
	for _, t := range Types() {
		required := fieldsNamed(t.Required)
		rules = append(rules, typeRule{t.Type, required, required | fieldsNamed(t.Optional), t.Reserved})
	}
	return rules
}()

// ruleOf returns the rule of a type; ok is false if there is no such type. It uses a loop, since
// the most frequent types come first: for these types a loop is faster than a map.
func ruleOf(t Type) (rule typeRule, ok bool) {
	for i := range typeRules {
		if typeRules[i].eventType == t {
			return typeRules[i], true
		}
	}
	return typeRule{}, false
}

// Envelope describes the JSON form of an [Event], for generated documentation.
type Envelope struct {
	SpecVersion     string `json:"specversion" doc:"The version of CloudEvents."`
	ID              string `json:"id" minLength:"1" maxLength:"256" doc:"Unique within the source. Source and id identify the event: a second event with the same source and id counts only for users that the first does not name."`
	Source          string `json:"source" minLength:"1" maxLength:"256" doc:"The publisher, by convention as a URI reference."`
	Type            Type   `json:"type" doc:"The type of the event."`
	Time            string `json:"time,omitempty" format:"date-time" doc:"When the event happened. It is only for information: no count depends on it. By default the time when the server accepted the event."`
	TraceParent     string `json:"traceparent,omitempty" minLength:"1" maxLength:"512" doc:"W3C trace context, stored with the event."`
	TraceState      string `json:"tracestate,omitempty" minLength:"1" maxLength:"512" doc:"W3C trace context, stored with the event."`
	DataContentType string `json:"datacontenttype,omitempty" doc:"Must be application/json, or end in +json."`
	DataSchema      string `json:"dataschema,omitempty" doc:"Accepted and ignored."`
	Subject         string `json:"subject,omitempty" doc:"Accepted and ignored."`
	Data            Data   `json:"data" doc:"What happened: the fields depend on the type."`
}
