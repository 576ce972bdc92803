package events_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/events"
)

// envelope returns an event of a type with these fields of data.
func envelope(typ events.Type, data string) string {
	return fmt.Sprintf(`{"specversion":"1.0","id":"1","source":"/chat","type":%q,"data":{%s}}`, typ, data)
}

// attribute returns a good event with one more attribute.
func attribute(member string) string {
	return strings.Replace(read, `{`, `{`+member+`,`, 1)
}

const (
	read = `{"specversion":"1.0","id":"1","source":"/chat","type":"conversation.read","data":{"conversation_id":"c","user_ids":["ann"],"up_to_seq":7}}`
	// who has the fields that nearly every event needs.
	who = `"conversation_id":"c","user_ids":["ann"]`
)

// strs returns n JSON strings.
func strs(n int) string {
	return strings.TrimSuffix(strings.Repeat(`"u",`, n), ",")
}

func long(n int) string { return strings.Repeat("x", n) }

// Every type, with its fewest and its most fields.
func TestDecode(t *testing.T) {
	base := events.Event{ID: "1", Source: "/chat"}
	of := func(typ events.Type, d events.Data) events.Event {
		e := base
		e.Type, e.Data = typ, d
		return e
	}
	c, ann := "c", []string{"ann"}
	for _, tc := range []struct {
		name, json string
		want       events.Event
	}{
		{
			"message.delivered, required fields",
			envelope(events.MessageDelivered, who+`,"seq":1`),
			of(events.MessageDelivered, events.Data{ConversationID: c, UserIDs: ann, Seq: 1}),
		},
		{
			"message.delivered, all fields",
			envelope(events.MessageDelivered, `"conversation_id":"c","user_ids":["ann","bob"],"seq":9223372036854775807,
				"mentioned_user_ids":["bob"],"category":"likes","message_id":"m","sender_id":"cem"`),
			of(events.MessageDelivered, events.Data{
				ConversationID: c, UserIDs: []string{"ann", "bob"}, Seq: math.MaxInt64,
				MentionedUserIDs: []string{"bob"}, Category: "likes", MessageID: "m", SenderID: "cem",
			}),
		},
		{
			"conversation.read",
			envelope(events.ConversationRead, who+`,"up_to_seq":7`),
			of(events.ConversationRead, events.Data{ConversationID: c, UserIDs: ann, UpToSeq: 7}),
		},
		{
			"message.recalled",
			envelope(events.MessageRecalled, who+`,"seq":7`),
			of(events.MessageRecalled, events.Data{ConversationID: c, UserIDs: ann, Seq: 7}),
		},
		{
			"conversation.marked_unread",
			envelope(events.ConversationMarkedUnread, who),
			of(events.ConversationMarkedUnread, events.Data{ConversationID: c, UserIDs: ann}),
		},
		{
			"seqs as digits in strings",
			envelope(events.ConversationMarkedUnread, who+`,"seqs":["7","9223372036854775807", 7]`),
			of(events.ConversationMarkedUnread, events.Data{ConversationID: c, UserIDs: ann, Seqs: []int64{7, math.MaxInt64, 7}}),
		},
		{
			"conversation.marked_unread, all fields",
			envelope(events.ConversationMarkedUnread, who+`,"seqs":[7,9223372036854775807, 7]`),
			of(events.ConversationMarkedUnread, events.Data{ConversationID: c, UserIDs: ann, Seqs: []int64{7, math.MaxInt64, 7}}),
		},
		{
			"conversation.level_set",
			envelope(events.ConversationLevelSet, who+`,"level":"mentions"`),
			of(events.ConversationLevelSet, events.Data{ConversationID: c, UserIDs: ann, Level: events.LevelMentions}),
		},
		{
			"conversation.left",
			envelope(events.ConversationLeft, who),
			of(events.ConversationLeft, events.Data{ConversationID: c, UserIDs: ann}),
		},
		{
			"conversation.left up to a message",
			envelope(events.ConversationLeft, who+`,"up_to_seq":7`),
			of(events.ConversationLeft, events.Data{ConversationID: c, UserIDs: ann, UpToSeq: 7}),
		},
		{
			"room.joined, required fields",
			envelope(events.RoomJoined, who),
			of(events.RoomJoined, events.Data{ConversationID: c, UserIDs: ann}),
		},
		{
			"room.joined, all fields",
			envelope(events.RoomJoined, who+`,"level":"mentions","up_to_seq":7`),
			of(events.RoomJoined, events.Data{ConversationID: c, UserIDs: ann, Level: events.LevelMentions, UpToSeq: 7}),
		},
		{
			"room.left",
			envelope(events.RoomLeft, who),
			of(events.RoomLeft, events.Data{ConversationID: c, UserIDs: ann}),
		},
		{
			"room.posted, required fields",
			envelope(events.RoomPosted, `"conversation_id":"c","seq":1`),
			of(events.RoomPosted, events.Data{ConversationID: c, Seq: 1}),
		},
		{
			"room.posted, all fields",
			envelope(events.RoomPosted, `"conversation_id":"c","seq":7,"mentioned_user_ids":["bob"],"mentions_all":true,
				"category":"likes","message_id":"m","sender_id":"cem"`),
			of(events.RoomPosted, events.Data{
				ConversationID: c, Seq: 7, MentionedUserIDs: []string{"bob"}, MentionsAll: true,
				Category: "likes", MessageID: "m", SenderID: "cem",
			}),
		},
		{
			"room.recalled",
			envelope(events.RoomRecalled, `"conversation_id":"c","seq":7`),
			of(events.RoomRecalled, events.Data{ConversationID: c, Seq: 7}),
		},
		{
			"conversation.read by an app",
			envelope(events.ConversationRead, who+`,"up_to_seq":7,"by_app":true`),
			of(events.ConversationRead, events.Data{ConversationID: c, UserIDs: ann, UpToSeq: 7, ByApp: true}),
		},
		{
			"conversation.read by no app",
			envelope(events.ConversationRead, who+`,"by_app":false,"up_to_seq":7`),
			of(events.ConversationRead, events.Data{ConversationID: c, UserIDs: ann, UpToSeq: 7}),
		},
		{
			"user.read_all",
			envelope(events.UserReadAll, `"user_ids":["ann"]`),
			of(events.UserReadAll, events.Data{UserIDs: ann, AllCategories: true}),
		},
		{
			"user.read_all of a category",
			envelope(events.UserReadAll, `"user_ids":["ann"],"category":"likes"`),
			of(events.UserReadAll, events.Data{UserIDs: ann, Category: "likes"}),
		},
		{
			"conversation.expired",
			envelope(events.ConversationExpired, who+`,"up_to_seq":7`),
			of(events.ConversationExpired, events.Data{ConversationID: c, UserIDs: ann, UpToSeq: 7}),
		},
		{
			"every attribute, in no order, with space between",
			` { "data" : {"up_to_seq":7,"user_ids":["ann"],"conversation_id":"c"} , "type":"conversation.read",
				"tracestate":"v=1", "traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
				"time":"2026-01-31T23:59:59.123456789+01:00", "datacontenttype":"application/json; charset=utf-8",
				"dataschema":"https://chat.example/schema", "subject":"c", "publishedby":"chat", "source":"/chat", "id":"1", "specversion":"1.0" } `,
			events.Event{
				ID: "1", Source: "/chat", Type: events.ConversationRead,
				Time:        time.Date(2026, 1, 31, 22, 59, 59, 123456789, time.UTC),
				TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", TraceState: "v=1", PublishedBy: "chat",
				Data: events.Data{ConversationID: c, UserIDs: ann, UpToSeq: 7},
			},
		},
		{
			"attributes that are null are not given",
			attribute(`"time":null,"traceparent":null,"tracestate":null,"datacontenttype":null,"dataschema":null,"subject":null,"data_base64":null`),
			of(events.ConversationRead, events.Data{ConversationID: c, UserIDs: ann, UpToSeq: 7}),
		},
		{
			"a media type that is JSON by its suffix",
			attribute(`"datacontenttype":"application/vnd.chat.v1+JSON"`),
			of(events.ConversationRead, events.Data{ConversationID: c, UserIDs: ann, UpToSeq: 7}),
		},
		{
			"a notification",
			envelope(events.MessageDelivered, `"conversation_id":"c","user_ids":["ann"],"seq":1,"notification":{"title":"Ben","body":"Lunch?\n","data":{"chat":"7"}}`),
			of(events.MessageDelivered, events.Data{
				ConversationID: c, UserIDs: ann, Seq: 1, Notification: events.Notification{Title: "Ben", Body: "Lunch?\n", Data: map[string]string{"chat": "7"}},
			}),
		},
		{
			"ids in any script, escaped or not",
			envelope(events.ConversationLeft, `"conversation_id":"\u7528户\ud83d\udc4b","user_ids":["a \"b\" \\ {c},NULL"]`),
			of(events.ConversationLeft, events.Data{ConversationID: "用户👋", UserIDs: []string{`a "b" \ {c},NULL`}}),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := events.Decode([]byte(tc.json))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("decoded (-want +got):\n%s", diff)
			}
		})
	}
}

// Values exactly at a limit are accepted.
func TestDecodeAtTheLimits(t *testing.T) {
	id, name := long(events.MaxIDBytes), long(events.MaxNameBytes)
	for what, json := range map[string]string{
		"ids of 128 bytes": envelope(events.MessageDelivered, fmt.Sprintf(
			`"conversation_id":%q,"user_ids":[%q],"seq":1,"mentioned_user_ids":[%q],"message_id":%q,"sender_id":%q,"category":%q`,
			id, id, id, id, id, strings.Repeat(long(63)+"/", 3)+long(63))),
		"a user id of 128 bytes in 32 characters": envelope(events.ConversationLeft,
			`"conversation_id":"c","user_ids":["`+strings.Repeat("👋", 32)+`"]`),
		"an id and a source of 256 bytes": strings.NewReplacer(`"1"`, `"`+name+`"`, `/chat`, name).Replace(read),
		"a trace context of 512 bytes":    attribute(fmt.Sprintf(`"traceparent":%q,"tracestate":%[1]q`, long(events.MaxTraceBytes))),
		"10,000 users, all mentioned": envelope(events.MessageDelivered,
			`"conversation_id":"c","user_ids":[`+strs(events.MaxUsers)+`],"seq":1,"mentioned_user_ids":[`+strs(events.MaxUsers)+`]`),
		"the earliest time": attribute(`"time":"0001-01-01T00:00:00Z"`),
		"the latest time":   attribute(`"time":"9999-12-31T23:59:59.999999999Z"`),
	} {
		if _, err := events.Decode([]byte(json)); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Each case breaks one rule and gets the error of that rule.
func TestDecodeRefuses(t *testing.T) {
	for _, tc := range []struct{ name, json, want string }{
		// The JSON.
		{"nothing", ``, `is not valid JSON: it is empty`},
		{"no object", `[]`, `must be a JSON object`},
		{"null", `null`, `must be a JSON object`},
		{"half an object", `{"specversion":"1.0",`, `is not valid JSON: it ends too early at byte 21`},
		{"no JSON", `{specversion:1}`, `is not valid JSON: invalid character 's' at start of value at byte 1`},
		{"a name given twice", attribute(`"id":"2"`), `is not valid JSON: duplicate object member name at byte 30`},
		{"a field given twice", envelope(events.ConversationLeft, who+`,"user_ids":[]`), `is not valid JSON: duplicate object member name at byte 123`},
		{"another event behind it", read + read, `must be one JSON object, with nothing after it`},
		{"a byte 0 behind it", read + "\x00", `is not valid JSON: invalid character '\x00' at start of value at byte 138`},
		{"something behind it", read + `}`, `is not valid JSON: invalid character '}' at start of value at byte 138`},
		{"an id that is not UTF-8", strings.Replace(read, `ann`, "\xff", 1), `is not valid JSON: invalid UTF-8 at byte 117`},
		{"half a surrogate pair", strings.Replace(read, `ann`, `\ud83d`, 1), "is not valid JSON: invalid surrogate pair `\\ud83d\"],\"up` in string at byte 117"},

		// The attributes.
		{"an empty object", `{}`, `specversion: is required; id: is required; source: is required; type: is required; data: is required`},
		{"no specversion", strings.Replace(read, `"specversion":"1.0",`, ``, 1), `specversion: is required`},
		{"a null specversion", strings.Replace(read, `"1.0"`, `null`, 1), `specversion: is required`},
		{"another specversion", strings.Replace(read, `1.0`, `0.3`, 1), `specversion: must be "1.0", is "0.3"`},
		{"a number as specversion", strings.Replace(read, `"1.0"`, `1.0`, 1), `specversion: must be a string`},
		{"no id", strings.Replace(read, `"id":"1",`, ``, 1), `id: is required`},
		{"an empty id", strings.Replace(read, `"1"`, `""`, 1), `id: must not be empty`},
		{"a number as id", strings.Replace(read, `"1"`, `1`, 1), `id: must be a string`},
		{"an id of 257 bytes", strings.Replace(read, `"1"`, `"`+long(257)+`"`, 1), `id: must have at most 256 bytes, has 257`},
		{"an id with a line break", strings.Replace(read, `"1"`, `"1\n"`, 1), `id: must not hold control characters`},
		{"no source", strings.Replace(read, `"source":"/chat",`, ``, 1), `source: is required`},
		{"a source of 257 bytes", strings.Replace(read, `/chat`, long(257), 1), `source: must have at most 256 bytes, has 257`},
		{"no type", strings.Replace(read, `"type":"conversation.read",`, ``, 1), `type: is required`},
		{"an unknown type", strings.Replace(read, `conversation.read`, `conversation.Read`, 1), `type: "conversation.Read" is not a type of event`},
		{"no data", strings.Replace(read, `"data":`, `"date":`, 1), `date: is not a known field; data: is required`},
		{"null data", `{"specversion":"1.0","id":"1","source":"/chat","type":"user.read_all","data":null}`, `data: is required`},
		{"data in base64", `{"specversion":"1.0","id":"1","source":"/chat","type":"user.read_all","data_base64":"e30="}`, `data_base64: is not supported: give data as JSON; data: is required`},
		{"data that is not JSON", attribute(`"datacontenttype":"application/xml"`), `datacontenttype: must be application/json, is "application/xml"`},
		{"a time without a zone", attribute(`"time":"2026-01-31T23:59:59"`), `time: must be an RFC 3339 time such as 2026-01-31T23:59:59Z, is "2026-01-31T23:59:59"`},
		{"a zone of a day", attribute(`"time":"2026-01-31T23:59:59+24:00"`), `time: must be an RFC 3339 time such as 2026-01-31T23:59:59Z, is "2026-01-31T23:59:59+24:00"`},
		{"a zone of 60 minutes", attribute(`"time":"2026-01-31T23:59:59-00:60"`), `time: must be an RFC 3339 time such as 2026-01-31T23:59:59Z, is "2026-01-31T23:59:59-00:60"`},
		{"a time before the year 1", attribute(`"time":"0001-01-01T00:00:00+01:00"`), `time: must lie in the years 1 to 9999`},
		{"a time after the year 9999", attribute(`"time":"9999-12-31T23:59:59-01:00"`), `time: must lie in the years 1 to 9999`},
		{"a trace context of 513 bytes", attribute(`"traceparent":"` + long(513) + `"`), `traceparent: must have at most 512 bytes, has 513`},
		{"a subject that is not a string", attribute(`"subject":[1,{"a":null}]`), `subject: must be a string`},
		{"an unknown attribute", attribute(`"priority":{"very":["high"]}`), `priority: is not a known field`},
		{"an attribute in another case", strings.Replace(read, `"id"`, `"ID"`, 1), `ID: is not a known field; id: is required`},
		{"an attribute with an unprintable name", attribute(`"\u0000\n\u0085":1`), `\x00\n\u0085: is not a known field`},
		{"an attribute with a long name", attribute(`"` + strings.Repeat("用", 100) + `":1`), strings.Repeat("用", 42) + `…: is not a known field`},

		// The fields of data.
		{"no conversation", envelope(events.ConversationLeft, `"user_ids":["ann"]`), `data.conversation_id: is required`},
		{"an empty conversation id", envelope(events.ConversationLeft, `"conversation_id":"","user_ids":["ann"]`), `data.conversation_id: must not be empty`},
		{"a conversation id of 129 bytes", envelope(events.ConversationLeft, `"conversation_id":"`+long(129)+`","user_ids":["ann"]`), `data.conversation_id: must have at most 128 bytes, has 129`},
		{"a number as conversation id", envelope(events.ConversationLeft, `"conversation_id":7,"user_ids":["ann"]`), `data.conversation_id: must be a string`},
		{"a null conversation id", envelope(events.ConversationLeft, `"conversation_id":null,"user_ids":["ann"]`), `data.conversation_id: is required`},
		{"no users", envelope(events.ConversationLeft, `"conversation_id":"c"`), `data.user_ids: is required`},
		{"an empty list of users", envelope(events.ConversationLeft, `"conversation_id":"c","user_ids":[]`), `data.user_ids: must name at least one user`},
		{"a user and no list", envelope(events.ConversationLeft, `"conversation_id":"c","user_ids":"ann"`), `data.user_ids: must be an array of strings`},
		{"10,001 users", envelope(events.ConversationLeft, `"conversation_id":"c","user_ids":[`+strs(10_001)+`]`), `data.user_ids: must name at most 10000 users, names 10001`},
		{"10,003 users", envelope(events.ConversationLeft, `"conversation_id":"c","user_ids":[`+strs(10_003)+`]`), `data.user_ids: must name at most 10000 users, names 10003`},
		{"a user id of 129 bytes", envelope(events.ConversationLeft, `"conversation_id":"c","user_ids":["ann","`+long(129)+`"]`), `data.user_ids[1]: must have at most 128 bytes, has 129`},
		{"users of every bad kind", envelope(events.ConversationLeft, `"conversation_id":"c","user_ids":["",7,null,"a\u0000","\u007f","\u0085"]`), `data.user_ids[1]: must be a string; data.user_ids[2]: must be a string; data.user_ids[0]: must not be empty; data.user_ids[3]: must not hold control characters; data.user_ids[4]: must not hold control characters; data.user_ids[5]: must not hold control characters`},
		{"seq 0", envelope(events.MessageDelivered, who+`,"seq":0`), `data.seq: must be at least 1, is 0`},
		{"seq -1", envelope(events.MessageRecalled, who+`,"seq":-1`), `data.seq: must be at least 1, is -1`},
		{"no seq", envelope(events.MessageDelivered, who), `data.seq: is required`},
		{"a seq past int64", envelope(events.MessageDelivered, who+`,"seq":9223372036854775808`), `data.seq: must be a whole number from 1 to 9223372036854775807, is "9223372036854775808"`},
		{"a seq that is not whole", envelope(events.MessageDelivered, who+`,"seq":1.5`), `data.seq: must be a whole number from 1 to 9223372036854775807, is "1.5"`},
		{"a seq with an exponent", envelope(events.MessageDelivered, who+`,"seq":1e3`), `data.seq: must be a whole number from 1 to 9223372036854775807, is "1e3"`},
		{"a seq that is an object", envelope(events.MessageDelivered, who+`,"seq":{}`), `data.seq: must be a whole number, or its digits in a string`},
		{"a signed string as seq", envelope(events.MessageDelivered, who+`,"seq":"+1"`), `data.seq: must be a whole number from 1 to 9223372036854775807, is "+1"`},
		{"a string of 20 digits as seq", envelope(events.MessageDelivered, who+`,"seq":"00000000000000000001"`), `data.seq: must be a whole number from 1 to 9223372036854775807, is "00000000000000000001"`},
		{"an empty string as seq", envelope(events.MessageDelivered, who+`,"seq":""`), `data.seq: must be a whole number from 1 to 9223372036854775807, is ""`},
		{"a string of zero as seq", envelope(events.MessageDelivered, who+`,"seq":"0"`), `data.seq: must be at least 1, is 0`},
		{"up_to_seq 0", envelope(events.ConversationRead, who+`,"up_to_seq":0`), `data.up_to_seq: must be at least 1, is 0`},
		{"no up_to_seq", envelope(events.ConversationExpired, who), `data.up_to_seq: is required`},
		{"mentions of others", envelope(events.MessageDelivered, who+`,"seq":1,"mentioned_user_ids":["ann","bob"]`), `data.mentioned_user_ids[1]: "bob" is not among data.user_ids`},
		{"a notification without text", envelope(events.MessageDelivered, who+`,"seq":1,"notification":{"data":{"a":"b"}}`), `data.notification: must have a title or a body`},
		{"a notification with a zero byte", envelope(events.MessageDelivered, who+`,"seq":1,"notification":{"body":"\u0000"}`), `data.notification: must be valid UTF-8 without zero bytes`},
		{"a notification with another member", envelope(events.MessageDelivered, who+`,"seq":1,"notification":{"body":"a","sound":1}`), `data.notification: must have no other members than title, body and data`},
		{"a notification of a read", envelope(events.ConversationLeft, who+`,"notification":{"body":"a"}`), `data.notification: is not a field of conversation.left`},
		{"10,001 mentions of one", envelope(events.MessageDelivered, `"conversation_id":"c","user_ids":["u"],"seq":1,"mentioned_user_ids":[`+strs(10_001)+`]`), `data.mentioned_user_ids: must name at most 10000 users, names 10001`},
		{"a message to a room for users", envelope(events.RoomPosted, who+`,"seq":1`), `data.user_ids: is not a field of room.posted`},
		{"mentions of every bad kind in a room", envelope(events.RoomPosted, `"conversation_id":"c","seq":1,"mentioned_user_ids":["bob","",7,"a\u0000"]`), `data.mentioned_user_ids[2]: must be a string; data.mentioned_user_ids[1]: must not be empty; data.mentioned_user_ids[3]: must not hold control characters`},
		{"10,001 mentions in a room", envelope(events.RoomPosted, `"conversation_id":"c","seq":1,"mentioned_user_ids":[`+strs(10_001)+`]`), `data.mentioned_user_ids: must name at most 10000 users, names 10001`},
		{"a message to users that mentions all", envelope(events.MessageDelivered, who+`,"seq":1,"mentions_all":true`), `data.mentions_all: is not a field of message.delivered`},
		{"a room without an id", envelope(events.RoomRecalled, `"seq":1`), `data.conversation_id: is required`},
		{"no seq in a room", envelope(events.RoomRecalled, `"conversation_id":"c"`), `data.seq: is required`},
		{"a join of no users", envelope(events.RoomJoined, `"conversation_id":"c","user_ids":[]`), `data.user_ids: must name at least one user`},
		{"a join of 10,001 users", envelope(events.RoomJoined, `"conversation_id":"c","user_ids":[`+strs(10_001)+`]`), `data.user_ids: must name at most 10000 users, names 10001`},
		{"an empty category", envelope(events.UserReadAll, `"user_ids":["ann"],"category":""`), `data.category: must not be empty`},
		{"a category of 65 bytes", envelope(events.UserReadAll, `"user_ids":["ann"],"category":"`+long(65)+`"`), `data.category: must have parts of at most 64 characters, has one of 65`},
		{"a message id of 129 bytes", envelope(events.MessageDelivered, who+`,"seq":1,"message_id":"`+long(129)+`"`), `data.message_id: must have at most 128 bytes, has 129`},
		{"a sender id of 129 bytes", envelope(events.MessageDelivered, who+`,"seq":1,"sender_id":"`+long(129)+`"`), `data.sender_id: must have at most 128 bytes, has 129`},
		{"a level that does not exist", envelope(events.ConversationLevelSet, who+`,"level":"ALL"`), `data.level: must be one of "default", "all", "mentions", "direct_mentions", "none", is "ALL"`},
		{"no messages", envelope(events.ConversationMarkedUnread, who+`,"seqs":[]`), `data.seqs: must name at least one message`},
		{"1,001 messages", envelope(events.ConversationMarkedUnread, who+`,"seqs":[1`+strings.Repeat(",1", 1000)+`]`), `data.seqs: must name at most 1000 messages, names 1001`},
		{"one message", envelope(events.ConversationMarkedUnread, who+`,"seqs":7`), `data.seqs: must be an array of whole numbers`},
		{"messages of every bad kind", envelope(events.ConversationMarkedUnread, who+`,"seqs":[1,0,"x",1.5,[3],9223372036854775808,null]`), `data.seqs[2]: must be a whole number from 1 to 9223372036854775807, is "x"; data.seqs[3]: must be a whole number from 1 to 9223372036854775807, is "1.5"; data.seqs[4]: must be a whole number, or its digits in a string; data.seqs[5]: must be a whole number from 1 to 9223372036854775807, is "9223372036854775808"; data.seqs[6]: must be a whole number, or its digits in a string; data.seqs[1]: must be at least 1, is 0`},
		{"messages of a read", envelope(events.ConversationRead, who+`,"up_to_seq":7,"seqs":[7]`), `data.seqs: is not a field of conversation.read`},
		{"a level until tomorrow", envelope(events.ConversationLevelSet, who+`,"level":"none","until":"tomorrow"`), `data.until: must be an RFC 3339 time such as 2026-01-31T23:59:59Z, is "tomorrow"`},
		{"a level until a number", envelope(events.ConversationLevelSet, who+`,"level":"none","until":1767225599`), `data.until: must be a string`},
		{"a level until nothing", envelope(events.ConversationLevelSet, who+`,"level":"none","until":""`), `data.until: must be an RFC 3339 time such as 2026-01-31T23:59:59Z, is ""`},
		{"a level until before the year 2000", envelope(events.ConversationLevelSet, who+`,"level":"none","until":"2000-01-01T00:00:00+01:00"`), `data.until: must lie in the years 2000 to 9999`},
		{"until without a level", envelope(events.ConversationLevelSet, who+`,"until":"2026-01-31T23:59:59Z"`), `data.level: is required`},
		{"a read until a time", envelope(events.ConversationRead, who+`,"up_to_seq":7,"until":"2026-01-31T23:59:59Z"`), `data.until: is not a field of conversation.read`},
		{"a join until a time", envelope(events.RoomJoined, who+`,"level":"none","until":"2026-01-31T23:59:59Z"`), `data.until: is not a field of room.joined`},
		{"the end of a level at no time", envelope(events.ConversationLevelEnded, who), `data.until: is required`},
		{"no level", envelope(events.ConversationLevelSet, who), `data.level: is required`},
		{"by_app in words", envelope(events.ConversationRead, who+`,"up_to_seq":7,"by_app":"yes"`), `data.by_app: must be true or false`},
		{"a mark by an app", envelope(events.ConversationMarkedUnread, who+`,"by_app":false`), `data.by_app: is not a field of conversation.marked_unread`},
		{"left up to 0", envelope(events.ConversationLeft, who+`,"up_to_seq":0`), `data.up_to_seq: must be at least 1, is 0`},
		{"a field of another type", envelope(events.MessageRecalled, who+`,"seq":1,"sender_id":"bob"`), `data.sender_id: is not a field of message.recalled`},
		{"a zero of another type", envelope(events.ConversationLeft, who+`,"seq":0`), `data.seq: is not a field of conversation.left`},
		{"an unknown field", envelope(events.ConversationLeft, who+`,"reason":"bored"`), `data.reason: is not a known field`},
		{"a field in another case", envelope(events.MessageDelivered, who+`,"Seq":1`), `data.Seq: is not a known field; data.seq: is required`},
		{"a field with an unprintable name", envelope(events.ConversationLeft, who+`,"\u0000":1`), `data.\x00: is not a known field`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e, err := events.Decode([]byte(tc.json))
			var invalid *events.InvalidError
			if !errors.As(err, &invalid) {
				t.Fatalf("decoded %+v, error %v", e, err)
			}
			if diff := cmp.Diff("invalid event: "+tc.want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

// An error about a bad event is bounded in length.
func TestDecodeReportsAtMostTwentyErrors(t *testing.T) {
	_, err := events.Decode([]byte(envelope(events.ConversationLeft,
		`"conversation_id":"c","user_ids":[`+strings.TrimSuffix(strings.Repeat(`"",`, 1000), ",")+`]`)))
	var invalid *events.InvalidError
	if !errors.As(err, &invalid) || len(invalid.Fields) != 20 {
		t.Errorf("said of 1,000 empty users: %v", err)
	}
}

// Error messages quote the text of publishers, and shorten it between characters.
func TestMessagesQuoteTexts(t *testing.T) {
	for given, want := range map[string]string{
		"é用👋":                  `"é用👋"`,
		"\a\b\t\n\v\f\r":       `"\a\b\t\n\v\f\r"`,
		"\x00\x06\x0e\x1f\x7f": `"\x00\x06\x0e\x1f\x7f"`,
		"\u0080\u009f":         `"\u0080\u009f"`,
		`"\`:                   `"\"\\"`,
		"\xff\u0085":           `"\xff\u0085"`,
		long(64):               `"` + long(64) + `"`,
		long(63) + "é":         `"` + long(63) + `"…`,
	} {
		e := events.Event{ID: "1", Source: "/chat", Type: events.Type(given), Data: events.Data{UserIDs: []string{"ann"}}}
		if err, want := e.Validate(), "invalid event: type: "+want+" is not a type of event"; err == nil || err.Error() != want {
			t.Errorf("%q:\n%v, want\n%s", given, err, want)
		}
	}
}

// Whatever bytes an event has, tables can hold the text of its error.
func TestErrorsAreText(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2)) // the same events in each run
	valid := []byte(`{"specversion":"1.0","id":"1","source":"s","type":"message.delivered","data":{"conversation_id":"c","user_ids":["ann"],"seq":1}}`)
	for range 20_000 {
		b := bytes.Clone(valid)
		for range 1 + r.IntN(4) {
			b[r.IntN(len(b))] = byte(r.IntN(256))
		}
		if _, err := events.Decode(b); err != nil && (!utf8.ValidString(err.Error()) || strings.Contains(err.Error(), "\x00")) {
			t.Errorf("the error of %q is %q", b, err)
		}
	}
}
