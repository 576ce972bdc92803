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
	// Means describes fields that mean something else in this type than [Data] says. The keys
	// are the JSON names of the fields.
	Means map[string]string
	// Reserved is set if only badged may write the event: [Publish] rejects it.
	Reserved bool
}

// Types describes every type of event.
func Types() []TypeInfo {
	ada := []string{"ada"}
	types := []TypeInfo{
		{
			Type: MessageDelivered, Does: "The message joins the unread messages, unless it is at or below the read position or was recalled.",
			Required: []string{"conversation_id", "user_ids", "seq"}, Optional: []string{"mentioned_user_ids", "category", "message_id", "sender_id", "notification"},
			Example: Event{ID: "design-crew/42", Data: Data{
				ConversationID: "design-crew", Seq: 42, UserIDs: []string{"ada", "chloe"}, SenderID: "ben", MentionedUserIDs: ada,
				Notification: Notification{Title: "Ben", Body: "Lunch?"},
			}},
		},
		{
			Type: ConversationRead, Does: "The read position moves up to up_to_seq, and never back. A mark ends, unless up_to_seq is below the read position. With by_app, it covers only messages delivered by then or within the next minute.",
			Required: []string{"conversation_id", "user_ids", "up_to_seq"}, Optional: []string{"by_app"},
			Example: Event{ID: "design-crew/read/ada/42", Data: Data{ConversationID: "design-crew", UserIDs: ada, UpToSeq: 42}},
		},
		{
			Type: MessageRecalled, Does: "The message leaves the unread messages and cannot join them again, even if the recall comes before the delivery, except by message.changed.",
			Required: []string{"conversation_id", "user_ids", "seq"}, Optional: []string{"revision"},
			Example: Event{ID: "design-crew/42/recalled", Data: Data{ConversationID: "design-crew", Seq: 42, UserIDs: []string{"ada", "chloe"}}},
		},
		{
			Type: MessageChanged, Does: "The message is delivered as this event says: it counts again if it was recalled, unless it is at or below the read position, and it mentions exactly mentioned_user_ids. Nothing changes if a change or recall with the same or a greater revision came before.",
			Required: []string{"conversation_id", "user_ids", "seq"}, Optional: []string{"mentioned_user_ids", "revision", "category", "message_id", "sender_id"},
			Example: Event{ID: "design-crew/42/edited/2", Data: Data{
				ConversationID: "design-crew", Seq: 42, UserIDs: []string{"ada", "chloe"}, SenderID: "ben", MentionedUserIDs: []string{"chloe"}, Revision: 2,
			}},
		},
		{
			Type: ConversationMarkedUnread, Does: "The conversation counts at least 1 until it is read up to the read position or further. With seqs, these messages count again until then instead, without those that were recalled. With from_seq, the messages of a room from there on do, without the user's own and those from before the user joined: rooms need from_seq, other conversations seqs. With both, from_seq applies to the members of the room and seqs to the others.",
			Required: []string{"conversation_id", "user_ids"}, Optional: []string{"seqs", "from_seq"},
			Example: Event{ID: "design-crew/unread/ada/1", Data: Data{ConversationID: "design-crew", UserIDs: ada}},
		},
		{
			Type: ConversationReset, Does: "The conversation is read up to up_to_seq, which may be below the read position, and seqs are unread, whatever was delivered, read or recalled before: seqs may be used again. Those at or below up_to_seq count again until the next read. Membership, level and a mark of the conversation stay. For a member of a room all messages above up_to_seq are unread, without the user's own, and seqs are ignored.",
			Required: []string{"conversation_id", "user_ids"}, Optional: []string{"up_to_seq", "seqs"},
			Means:   map[string]string{"up_to_seq": "The last message that is read, by default none.", "seqs": "The messages that are unread, by default none."},
			Example: Event{ID: "design-crew/reset/ada/1", Data: Data{ConversationID: "design-crew", UserIDs: ada, UpToSeq: 40, Seqs: []int64{41, 42}}},
		},
		{
			Type: ConversationSeen, Does: "The seen position moves up to up_to_seq, and never back: unread messages up to there are not unseen any more. A read moves it as well. With by_app, it covers only messages delivered by then.",
			Required: []string{"conversation_id", "user_ids", "up_to_seq"}, Optional: []string{"by_app"},
			Means:   map[string]string{"up_to_seq": "The last message that the user has seen."},
			Example: Event{ID: "design-crew/seen/ada/42", Data: Data{ConversationID: "design-crew", UserIDs: ada, UpToSeq: 42}},
		},
		{
			Type: ConversationLevelSet, Does: "Changes what the conversation adds to the total, until the next level_set or, with until, until that time: then the conversation has the last level again that was set without until. The level default unsets it: then that of the longest category applies which covers the conversation, or else all.",
			Required: []string{"conversation_id", "user_ids", "level"}, Optional: []string{"until"},
			Example: Event{ID: "design-crew/level/ada/1", Data: Data{ConversationID: "design-crew", UserIDs: ada, Level: LevelMentions}},
		},
		{
			Type: ConversationLeft, Does: "The conversation is read up to its last delivered message, or up to up_to_seq if that is greater, and leaves every list until a message with a greater seq is delivered.",
			Required: []string{"conversation_id", "user_ids"}, Optional: []string{"up_to_seq"},
			Means:   map[string]string{"up_to_seq": "The last message that does not bring the conversation back, by default the last delivered one."},
			Example: Event{ID: "design-crew/left/ada/1", Data: Data{ConversationID: "design-crew", UserIDs: ada, UpToSeq: 42}},
		},
		{
			Type: CategoryLevelSet, Does: "Sets the level of a category for all conversations that it covers and that have no level of their own, also for those to come. Of several categories that cover a conversation, the longest that has a level decides. The level default unsets it. With by_app, nothing changes if the user has 500 levels of categories already.",
			Required: []string{"user_ids", "category", "level"}, Optional: []string{"by_app"},
			Means:   map[string]string{"category": "The category, which covers itself and all that begin with it and a slash.", "level": "What the conversations add to the total."},
			Example: Event{ID: "level/ada/acme/1", Data: Data{UserIDs: ada, Category: "acme", Level: LevelNone}},
		},
		{
			Type: UserReadAll, Does: "Every conversation, or every conversation that a category covers, is read up to its last delivered message.",
			Required: []string{"user_ids"}, Optional: []string{"category"},
			Means:   map[string]string{"category": "Only the conversations of this category and of those below it, by default all."},
			Example: Event{ID: "read-all/ada/1", Data: Data{UserIDs: ada, Category: "likes"}},
		},
		{
			Type: UserSeenAll, Does: "Every conversation, or every conversation that a category covers, is seen up to its last delivered message.",
			Required: []string{"user_ids"}, Optional: []string{"category"},
			Means:   map[string]string{"category": "Only the conversations of this category and of those below it, by default all."},
			Example: Event{ID: "seen-all/ada/1", Data: Data{UserIDs: ada, Category: "likes"}},
		},
		{
			Type: UserLeftAll, Does: "The users leave every conversation that a category covers, as with conversation.left, and every room there, as with room.left.",
			Required: []string{"user_ids", "category"},
			Means:    map[string]string{"category": "The category that is left with all below it."},
			Example:  Event{ID: "left-all/ada/acme/1", Data: Data{UserIDs: ada, Category: "acme"}},
		},
		{
			Type: RoomJoined, Does: "The users become members of the room. Each has read it up to up_to_seq, or else up to its last message. Nothing changes for those who are members already.",
			Required: []string{"conversation_id", "user_ids"}, Optional: []string{"up_to_seq", "level"},
			Means:   map[string]string{"up_to_seq": "The last message that is read, by default the last one of the room."},
			Example: Event{ID: "town-hall/joined/ada/1", Data: Data{ConversationID: "town-hall", UserIDs: []string{"ada", "chloe"}}},
		},
		{
			Type: RoomLeft, Does: "The users stop being members of the room, and what they had unread there is gone. Nothing changes for those who are not members.",
			Required: []string{"conversation_id", "user_ids"},
			Example:  Event{ID: "town-hall/left/ada/1", Data: Data{ConversationID: "town-hall", UserIDs: ada}},
		},
		{
			Type: RoomPosted, Does: "The message joins the unread messages of every member of the room but its sender, unless it is at or below the read position or was recalled. It counts for members only.",
			Required: []string{"conversation_id", "seq"}, Optional: []string{"mentioned_user_ids", "mentions_all", "category", "message_id", "sender_id", "notification"},
			Means:   map[string]string{"mentioned_user_ids": "The users that the message mentions. Those who are not members are ignored."},
			Example: Event{ID: "town-hall/7", Data: Data{ConversationID: "town-hall", Seq: 7, SenderID: "ben", MentionedUserIDs: ada}},
		},
		{
			Type: RoomRecalled, Does: "The message leaves the unread messages of every member of the room and cannot join them again, even if the recall comes before the message, except by room.changed.",
			Required: []string{"conversation_id", "seq"}, Optional: []string{"revision"},
			Example: Event{ID: "town-hall/7/recalled", Data: Data{ConversationID: "town-hall", Seq: 7}},
		},
		{
			Type: RoomChanged, Does: "The message is posted as this event says: it counts again if it was recalled, for the members who have not read so far, except its sender, and it mentions exactly mentioned_user_ids, or everyone. Nothing changes if a change or recall with the same or a greater revision came before.",
			Required: []string{"conversation_id", "seq"}, Optional: []string{"mentioned_user_ids", "mentions_all", "revision", "category", "message_id", "sender_id"},
			Means:   map[string]string{"mentioned_user_ids": "The users that the message mentions. Those who are not members are ignored."},
			Example: Event{ID: "town-hall/7/edited/2", Data: Data{ConversationID: "town-hall", Seq: 7, SenderID: "ben", Revision: 2}},
		},
		{
			Type: RoomReset, Does: "The last message of the room is seq, by default none: those above are forgotten, recalled or not, and their seqs may be used again. The read position of every member is at most seq, and at least up_to_seq. Levels and marks of the room stay. Of the last resets of a room, a repeat under the same source and id changes nothing.",
			Required: []string{"conversation_id"}, Optional: []string{"seq", "up_to_seq"},
			Means:   map[string]string{"seq": "The last message of the room, by default none.", "up_to_seq": "The message up to which every member has read at least."},
			Example: Event{ID: "town-hall/truncated/1", Data: Data{ConversationID: "town-hall"}},
		},
		{
			Type: ConversationExpired, Does: "Reads a conversation up to its last delivered message, after it went without new messages for too long.", Reserved: true,
			Required: []string{"conversation_id", "user_ids", "up_to_seq"},
			Example:  Event{ID: "design-crew/expired/ada/42", Data: Data{ConversationID: "design-crew", UserIDs: ada, UpToSeq: 42}},
		},
		{
			Type: ConversationLevelEnded, Does: "Ends a level that was set until this time or earlier, once the time has come.", Reserved: true,
			Required: []string{"conversation_id", "user_ids", "until"},
			Means:    map[string]string{"until": "Levels that were set until then or earlier end."},
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
	of                Type
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

// ruleOf returns the rule of a type; ok is false if there is no such type. ruleOf uses a loop,
// which is faster than a map for the most frequent types, since these come first.
func ruleOf(t Type) (rule typeRule, ok bool) {
	for i := range typeRules {
		if typeRules[i].of == t {
			return typeRules[i], true
		}
	}
	return typeRule{}, false
}

// Envelope describes the JSON form of an [Event], for generated documentation.
type Envelope struct {
	SpecVersion     string `json:"specversion" doc:"The version of CloudEvents."`
	ID              string `json:"id" minLength:"1" maxLength:"256" doc:"Unique within the source. The two identify the event: a repeated event changes nothing."`
	Source          string `json:"source" minLength:"1" maxLength:"256" doc:"The publisher, by convention as a URI reference."`
	Type            Type   `json:"type" doc:"The type, one of those below."`
	Time            string `json:"time,omitempty" format:"date-time" doc:"When it happened, for information: no count depends on it. By default the time at which the event was accepted."`
	TraceParent     string `json:"traceparent,omitempty" minLength:"1" maxLength:"512" doc:"W3C trace context, stored with the event."`
	TraceState      string `json:"tracestate,omitempty" minLength:"1" maxLength:"512" doc:"W3C trace context, stored with the event."`
	DataContentType string `json:"datacontenttype,omitempty" doc:"Must be application/json, or end in +json."`
	DataSchema      string `json:"dataschema,omitempty" doc:"Accepted and ignored."`
	Subject         string `json:"subject,omitempty" doc:"Accepted and ignored."`
	Data            Data   `json:"data" doc:"What happened."`
}
