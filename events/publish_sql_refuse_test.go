package events_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/badged/badged/events"
)

// asJSONB returns JSON as jsonb shows it: names sorted, duplicates dropped.
func asJSONB(t anyT, pool *pgxpool.Pool, text string) string {
	var canonical string
	if err := pool.QueryRow(t.Context(), `SELECT $1::jsonb::text`, text).Scan(&canonical); err != nil {
		t.Fatal(err)
	}
	return canonical
}

// decodePublished is Decode for publishers.
func decodePublished(event string) error {
	e, err := events.Decode([]byte(event))
	if err != nil {
		return err
	}
	return e.CheckReserved()
}

// indexedField is an element of the detail of a refusal.
type indexedField struct {
	Index int    `json:"index"`
	Field string `json:"field"`
}

// fieldsIn returns the fields that errors name, by event.
func fieldsIn(bad ...events.IndexedError) []indexedField {
	var all []indexedField
	for _, e := range bad {
		for _, f := range e.Err.Fields {
			all = append(all, indexedField{e.Index, f.Field})
		}
	}
	return comparableFields(all)
}

// refusedFields returns the fields in the detail of a refusal by SQL.
func refusedFields(err error) []indexedField {
	_, detail := refusal(err)
	var all []indexedField
	_ = json.Unmarshal([]byte(detail), &all) // none, if there is no detail
	return comparableFields(all)
}

// comparableFields sorts fields, and cuts names where Go and SQL show unknown ones in
// different ways: they are long, or have characters that Go escapes.
func comparableFields(fields []indexedField) []indexedField {
	for i, f := range fields {
		name := []rune(f.Field)
		name = name[:min(len(name), 30)]
		if at := slices.IndexFunc(name, func(r rune) bool { return !unicode.IsPrint(r) || r == '"' || r == '\\' }); at >= 0 {
			name = name[:at]
		}
		fields[i].Field = string(name)
	}
	slices.SortFunc(fields, func(a, b indexedField) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), strings.Compare(a.Field, b.Field))
	})
	return slices.Compact(fields)
}

// unprinted are spaces and invisible, unassigned, private and
// direction-changing characters. Error messages show them unescaped.
const unprinted = "a\u00a0\u00ad\u0378\u061c\u180e\u2003\u200b\u2028\u202e\u2066\ue000\ufdd0\ufeff\ufffd\U000e0001\U0010ffff"

// SQL accepts exactly the events that Go accepts, and finds the same fields at
// fault in others.
func TestPublishSQLRefusesWhatGoRefuses(t *testing.T) {
	delivered := func(fields string) string { return envelope(events.MessageDelivered, fields) }
	left := func(fields string) string { return envelope(events.ConversationLeft, fields) }
	posted := func(fields string) string {
		return envelope(events.RoomPosted, `"conversation_id":"c","seq":1`+fields)
	}
	replace := func(old, with string) string { return strings.Replace(read, old, with, 1) }

	notified := func(notification string) string {
		return delivered(who + `,"seq":1,"notification":{` + notification + `}`)
	}
	type verdict bool
	const good, bad verdict = true, false
	cases := []struct {
		name, json string
		want       verdict
	}{
		{"null", `null`, bad},
		{"a text", `"event"`, bad},
		{"an array", `[` + read + `]`, bad},
		{"an empty object", `{}`, bad},
		{"a name given twice", replace(`"id"`, `"id":7,"id"`), good},
		{"a number spelt in another way", delivered(who + `,"seq":1e3`), good},
		{"a whole number with a fraction", delivered(who + `,"seq":1.0`), bad},
		{"digits in a string", delivered(who + `,"seq":"1234567890123456789"`), good},
		{"digits in strings", envelope("conversation.marked_unread", who+`,"seqs":["7",8,"9223372036854775807"]`), good},
		{"a string of zero", delivered(who + `,"seq":"0"`), bad},
		{"a string with a sign", delivered(who + `,"seq":"-1"`), bad},
		{"a string that is not a number", delivered(who + `,"seq":"seven"`), bad},
		{"an empty string as seq", delivered(who + `,"seq":""`), bad},
		{"20 digits in a string", delivered(who + `,"seq":"00000000000000000001"`), bad},
		{"digits past int64 in a string", delivered(who + `,"seq":"9223372036854775808"`), bad},
		{"a million digits in a string", delivered(who + `,"seq":"` + strings.Repeat("1", 1_000_000) + `"`), bad},

		{"no specversion", replace(`"specversion":"1.0",`, ``), bad},
		{"a null specversion", replace(`"1.0"`, `null`), bad},
		{"another specversion", replace(`1.0`, `1.1`), bad},
		{"an empty specversion", replace(`1.0`, ``), bad},
		{"a number as specversion", replace(`"1.0"`, `1.0`), bad},
		{"no type", replace(`"type":"conversation.read",`, ``), bad},
		{"an empty type", replace(`conversation.read`, ``), bad},
		{"an unknown type", replace(`conversation.read`, `conversation \"read\"\\\n`), bad},
		{"an unknown type that Unicode does not print", replace(`conversation.read`, unprinted), bad},
		{"a long unknown type", replace(`conversation.read`, strings.Repeat("用", 22)), bad},
		{"a type and an id, both empty", replace(`"1"`, `"","type":""`), bad},
		{"a number as type", replace(`"conversation.read"`, `7`), bad},
		{"badged's own type", replace(`conversation.read`, `conversation.expired`), bad},
		{"badged's own field", `{"specversion":"1.0","id":"1","source":"/chat","type":"room.joined","data":{"conversation_id":"c","user_ids":["ann"],"seq":7}}`, bad},
		{"badged's own type and no data", `{"specversion":"1.0","id":"1","source":"/chat","type":"conversation.expired"}`, bad},
		{"no data", `{"specversion":"1.0","id":"1","source":"/chat","type":"user.read_all"}`, bad},
		{"null data", `{"specversion":"1.0","id":"1","source":"/chat","type":"user.read_all","data":null}`, bad},
		{"data of an unknown type", envelope("conversation.loud", `"x":1,"seq":0`), bad},
		{"data in base64", attribute(`"data_base64":"e30="`), bad},
		{"null data in base64", attribute(`"data_base64":null`), good},
		{"a subject", attribute(`"subject":"c"`), good},
		{"a subject that is not text", attribute(`"subject":{}`), bad},
		{"JSON", attribute(`"datacontenttype":" Application/JSON ; charset=utf-8"`), good},
		{"JSON between spaces that are not ASCII", attribute(`"datacontenttype":"\u00a0application/json\u2003"`), bad},
		{"JSON by its suffix before such a space", attribute(`"datacontenttype":"application/x+json\u0085;"`), bad},
		{"JSON between every ASCII space", attribute(`"datacontenttype":" \t\n\u000b\f\rapplication/json \t\n\u000b\f\r"`), good},
		{"JSON by its suffix", attribute(`"datacontenttype":"application/x+json"`), good},
		{"XML", attribute(`"datacontenttype":"application/xml;+json"`), bad},
		{"nearly JSON", attribute(`"datacontenttype":"application/json5"`), bad},
		{"an empty trace context", attribute(`"traceparent":"","tracestate":""`), good},
		{"an unknown attribute", attribute(`"priority":1`), bad},
		{"the attribute that badged writes", attribute(`"publishedby":"chat"`), bad},
		{"an unknown attribute that is null", attribute(`"priority":null`), good},
		{"an attribute without a name", attribute(`"":1`), bad},
		{"an attribute with quotes in its name", attribute(`"a\"b":1`), bad},
		{"an attribute with an unprintable name", attribute(`"\"\n\u0007\u0001\u007f\u0085":1`), bad},
		{"an attribute with every short escape in its name", attribute(`"\u0007\b\t\n\u000b\f\r\"\\":1`), bad},
		{"an attribute with a name that Unicode does not print", attribute(`"` + unprinted + `":1`), bad},
		{"an attribute with a name of that and a line break", attribute(`"` + unprinted + `\n":1`), bad},
		{"an attribute with a name of 128 bytes", attribute(`"` + long(128) + `":1`), bad},
		{"an attribute with a long name", attribute(`"` + strings.Repeat("用", 43) + `":1`), bad},
		{"two attributes that are shown alike", attribute(fmt.Sprintf(`"%sa":1,"%[1]sb":2`, long(128))), bad},
		{"an attribute that is shown like a field", replace(`"id"`, `"data.up_to_seq":1,"id"`), bad},

		{"an unknown field", left(who + `,"reason":"bored"`), bad},
		{"a field with a long name", left(who + `,"` + strings.Repeat("用", 42) + `":1`), bad},
		{"no fields", left(``), bad},
		{"a field of another type", left(who + `,"seq":0`), bad},
		{"mentions of another type", left(who + `,"mentioned_user_ids":["bob",7]`), bad},
		{"every field", envelope(events.UserReadAll, `"conversation_id":"","user_ids":["ann"],"seq":0,"up_to_seq":0,"mentioned_user_ids":[],"category":"","message_id":"","sender_id":"","level":"","by_app":true`), bad},
		{"users of every bad kind", left(`"conversation_id":"c","user_ids":["",7,null,["a"],{},"a\u0001","\u007f","\u0085","\u00a0"]`), bad},
		{"users nested", left(`"conversation_id":"c","user_ids":[["ann"]]`), bad},
		{"no list of users", left(`"conversation_id":"c","user_ids":"ann"`), bad},
		{"no users", left(`"conversation_id":"c","user_ids":[]`), bad},
		{"more than twenty bad users", left(`"conversation_id":"c","user_ids":[` + strings.ReplaceAll(strs(30), `u`, ``) + `]`), bad},
		{"10,000 users", left(`"conversation_id":"c","user_ids":[` + strs(10_000) + `]`), good},
		{"10,001 users", left(`"conversation_id":"c","user_ids":[` + strs(10_001) + `]`), bad},
		{"10,003 users, the last two bad", left(`"conversation_id":"c","user_ids":[` + strs(10_000) + `,7,8,9]`), bad},
		{"10,000 mentions of one", delivered(`"conversation_id":"c","user_ids":["u"],"seq":1,"mentioned_user_ids":[` + strs(10_000) + `]`), good},
		{"10,001 mentions of one", delivered(`"conversation_id":"c","user_ids":["u"],"seq":1,"mentioned_user_ids":[` + strs(10_001) + `]`), bad},
		{"no mentions", delivered(who + `,"seq":1,"mentioned_user_ids":[]`), good},
		{"mentions of others", delivered(who + `,"seq":1,"mentioned_user_ids":["ann","b\"o\\b\t","` + strings.Repeat("用", 22) + `",""]`), bad},
		{"mentions that are no texts", delivered(`"conversation_id":"c","user_ids":["ann",7],"seq":1,"mentioned_user_ids":["ann","7","",7]`), bad},
		{"mentions without users", delivered(`"conversation_id":"c","user_ids":7,"seq":1,"mentioned_user_ids":["ann"]`), bad},
		{"a notification", notified(`"title":"Ann","body":"Lunch?","data":{"a":"1","b":""}`), good},
		{"a notification with nulls", notified(`"title":null,"body":"Lunch?","data":null`), good},
		{"a notification with line breaks", notified(`"body":"a\n\"b\""`), good},
		{"an empty notification", notified(``), bad},
		{"a notification without text", notified(`"title":"","data":{"a":"1"}`), bad},
		{"a notification of 2048 bytes", notified(`"title":"` + long(1024) + `","body":"` + long(1024) + `"`), good},
		{"a notification of 2049 bytes", notified(`"title":"` + long(1024) + `","body":"` + long(1025) + `"`), bad},
		{"a notification with 1024 bytes of data", notified(`"body":"a","data":{"k":"` + long(1023) + `"}`), good},
		{"a notification with 1025 bytes of data", notified(`"body":"a","data":{"k":"` + long(1024) + `"}`), bad},
		{"a notification with another member", notified(`"body":"a","sound":"b"`), bad},
		{"a notification whose title is no text", notified(`"title":["a"],"body":"a"`), bad},
		{"a notification whose data is no object", notified(`"body":"a","data":["a"]`), bad},
		{"a notification with a number as data", notified(`"body":"a","data":{"a":1}`), bad},
		{"a notification with data in data", notified(`"body":"a","data":{"a":{"b":"c"}}`), bad},
		{"a notification that is a text", delivered(who + `,"seq":1,"notification":"a"`), bad},
		{"a notification that is a list", delivered(who + `,"seq":1,"notification":["a"]`), bad},
		{"a notification of a read", left(who + `,"notification":{"body":"a"}`), bad},
		{"seq 1", delivered(who + `,"seq":1`), good},
		{"seq 0", delivered(who + `,"seq":0`), bad},
		{"seq -0", delivered(who + `,"seq":-0`), bad},
		{"the last seq", delivered(who + `,"seq":9223372036854775807`), good},
		{"a seq past int64", delivered(who + `,"seq":9223372036854775808`), bad},
		{"the least int64", delivered(who + `,"seq":-9223372036854775808`), bad},
		{"a seq below int64", delivered(who + `,"seq":-9223372036854775809`), bad},
		{"a seq of 400 digits", delivered(who + `,"seq":1e399`), bad},
		{"a seq below 1 that is not whole", delivered(who + `,"seq":-0.5`), bad},
		{"a list as seq", delivered(who + `,"seq":[1]`), bad},
		{"a null seq", delivered(who + `,"seq":null`), bad},
		{"up_to_seq 0", replace(`7`, `0`), bad},
		{"a level that does not exist", envelope(events.ConversationLevelSet, who+`,"level":"ALL"`), bad},
		{"a level of 64 bytes", envelope(events.ConversationLevelSet, who+`,"level":"`+long(64)+`"`), bad},
		{"a level until a time", envelope(events.ConversationLevelSet, who+`,"level":"none","until":"2026-01-31T23:59:59.123456789+01:00"`), good},
		{"a level until a null", envelope(events.ConversationLevelSet, who+`,"level":"none","until":null`), good},
		{"a level until tomorrow", envelope(events.ConversationLevelSet, who+`,"level":"none","until":"tomorrow"`), bad},
		{"a level until a time without a zone", envelope(events.ConversationLevelSet, who+`,"level":"none","until":"2026-01-31T23:59:59"`), bad},
		{"a level until a number", envelope(events.ConversationLevelSet, who+`,"level":"none","until":1767225599`), bad},
		{"a level until nothing", envelope(events.ConversationLevelSet, who+`,"level":"none","until":""`), bad},
		{"a level until the year 0", envelope(events.ConversationLevelSet, who+`,"level":"none","until":"0000-02-29T00:00:00Z"`), bad},
		{"until without a level", envelope(events.ConversationLevelSet, who+`,"until":"2026-01-31T23:59:59Z"`), bad},
		{"a read until a time", replace(`7`, `7,"until":"2026-01-31T23:59:59Z"`), bad},
		{"a join until a time", envelope(events.RoomJoined, who+`,"level":"none","until":"2026-01-31T23:59:59Z"`), bad},
		{"the end of a level", envelope(events.ConversationLevelEnded, who+`,"until":"2026-01-31T23:59:59Z"`), bad},
		{"by an app", replace(`7`, `7,"by_app":true`), good},
		{"by no app", replace(`7`, `7,"by_app":false`), good},
		{"by an app in words", replace(`7`, `7,"by_app":"true"`), bad},
		{"by an app that is null", replace(`7`, `7,"by_app":null`), good},
		{"a mark by an app", envelope(events.ConversationMarkedUnread, who+`,"by_app":false`), bad},
		{"left up to a message", left(who + `,"up_to_seq":7`), good},
		{"left up to 0", left(who + `,"up_to_seq":0`), bad},
		{"a room that is joined", envelope(events.RoomJoined, who), good},
		{"a room that is joined up to a message", envelope(events.RoomJoined, who+`,"up_to_seq":7,"level":"none"`), good},
		{"a room that is joined up to 0", envelope(events.RoomJoined, who+`,"up_to_seq":0`), bad},
		{"a room that is joined at no level", envelope(events.RoomJoined, who+`,"level":""`), bad},
		{"a room that 10,000 users join", envelope(events.RoomJoined, `"conversation_id":"c","user_ids":[`+strs(10_000)+`]`), good},
		{"a room that 10,001 users join", envelope(events.RoomJoined, `"conversation_id":"c","user_ids":[`+strs(10_001)+`]`), bad},
		{"a room that no user joins", envelope(events.RoomJoined, `"conversation_id":"c","user_ids":[]`), bad},
		{"a room that is joined with a message", envelope(events.RoomJoined, who+`,"seq":1`), bad},
		{"a room that is left", envelope(events.RoomLeft, who), good},
		{"a room that is left up to a message", envelope(events.RoomLeft, who+`,"up_to_seq":7`), bad},
		{"a room that 10,001 users leave", envelope(events.RoomLeft, `"conversation_id":"c","user_ids":[`+strs(10_001)+`]`), bad},
		{"users and no room", envelope(events.RoomLeft, `"user_ids":["ann"]`), bad},
		{"a message to a room", posted(``), good},
		{"a message to a room with every field", posted(`,"mentioned_user_ids":["bob","cem"],"mentions_all":true,"category":"likes","message_id":"m","sender_id":"ann"`), good},
		{"a message to a room for users", posted(`,"user_ids":["ann"]`), bad},
		{"a message to a room for users that it mentions", posted(`,"user_ids":["ann"],"mentioned_user_ids":["bob"]`), bad},
		{"a message to a room without a seq", envelope(events.RoomPosted, `"conversation_id":"c"`), bad},
		{"a message to a room with mentions of every bad kind", posted(`,"mentioned_user_ids":["",7,null,["a"],{},"a\u0001","\u007f","` + long(129) + `","\u00a0"]`), bad},
		{"a message to a room without mentions", posted(`,"mentioned_user_ids":[]`), good},
		{"a message to a room with 10,000 mentions", posted(`,"mentioned_user_ids":[` + strs(10_000) + `]`), good},
		{"a message to a room with 10,001 mentions", posted(`,"mentioned_user_ids":[` + strs(10_001) + `]`), bad},
		{"a message to a room with mentions in no list", posted(`,"mentioned_user_ids":"ann"`), bad},
		{"a message to a room that does not mention all", posted(`,"mentions_all":false`), good},
		{"a message to a room that mentions all in words", posted(`,"mentions_all":"true"`), bad},
		{"a message to users that mentions all", delivered(who + `,"seq":1,"mentions_all":false`), bad},
		{"a recalled message of a room", envelope(events.RoomRecalled, `"conversation_id":"c","seq":7`), good},
		{"a recalled message of a room for users", envelope(events.RoomRecalled, who+`,"seq":7`), bad},
		{"a recalled message of a room without a seq", envelope(events.RoomRecalled, `"conversation_id":"c"`), bad},

		{"an empty level", envelope(events.ConversationLevelSet, who+`,"level":""`), bad},

		{"a time", attribute(`"time":"2026-01-31T23:59:59.123456789+01:00"`), good},
		{"a time without a zone", attribute(`"time":"2026-01-31T23:59:59"`), bad},
		{"a time in words", attribute(`"time":"now"`), bad},
		{"a time with something behind it", attribute(`"time":"2026-01-31T23:59:59Z\n"`), bad},
		{"a 29 February in a common year", attribute(`"time":"1900-02-29T00:00:00Z"`), bad},
		{"a 31 April", attribute(`"time":"2026-04-31T00:00:00Z"`), bad},
		{"a day 0", attribute(`"time":"2026-04-00T00:00:00Z"`), bad},
		{"a leap second", attribute(`"time":"2026-06-30T23:59:60Z"`), bad},
		{"hour 24", attribute(`"time":"2026-06-30T24:00:00Z"`), bad},
		{"a time in small letters", attribute(`"time":"2026-06-30t23:59:59z"`), bad},
		{"the first instant", attribute(`"time":"0001-01-01T00:00:00Z"`), good},
		{"a time before it", attribute(`"time":"0001-01-01T00:00:00+00:01"`), bad},
		{"the year 0", attribute(`"time":"0000-02-29T00:00:00Z"`), bad},
		{"the last second", attribute(`"time":"9999-12-31T23:59:59.9Z"`), good},
		{"a time behind it", attribute(`"time":"9999-12-31T23:59:59-00:01"`), bad},
	}
	// Every text at its limit and past it, in characters of one byte and more.
	for field, limit := range map[string]int{
		"id": 256, "source": 256, "traceparent": 512, "tracestate": 512,
		"conversation_id": 128, "user_ids": 128, "message_id": 128, "sender_id": 128,
	} {
		with := func(text string) string {
			values := map[string]string{
				"id": "1", "source": "/chat", "traceparent": "p", "tracestate": "s",
				"conversation_id": "c", "user_ids": "ann", "message_id": "m", "sender_id": "s", "category": "chat",
			}
			values[field] = text
			return fmt.Sprintf(`{"specversion":"1.0","type":"message.delivered","id":"%s","source":"%s","traceparent":"%s","tracestate":"%s",`+
				`"data":{"seq":1,"conversation_id":"%s","user_ids":["%s"],"message_id":"%s","sender_id":"%s","category":"%s"}}`,
				values["id"], values["source"], values["traceparent"], values["tracestate"],
				values["conversation_id"], values["user_ids"], values["message_id"], values["sender_id"], values["category"])
		}
		for _, c := range []struct {
			what, text string
			want       verdict
		}{
			{"at the limit", long(limit), good},
			{"past the limit", long(limit + 1), bad},
			{"of four-byte characters at the limit", strings.Repeat("👋", limit/4), good},
			{"of four-byte characters past the limit", strings.Repeat("👋", limit/4) + "x", bad},
			{"with the last of C0", `a\u001f`, bad},
			{"with a space", ` `, good},
			{"with a tilde", `~`, good},
			{"with DEL", `\u007f`, bad},
			{"with the last of C1", `\u009f`, bad},
			{"with the character after C1", "\u00a0", good},
			{"with quotes and backslashes", `\"\\\"`, good},
			{"with a line separator and a noncharacter", "\u2028\ufffe\U0010ffff", good},
		} {
			cases = append(cases, struct {
				name, json string
				want       verdict
			}{field + " " + c.what, with(c.text), c.want})
		}
	}

	inLogAndOutbox(t, func(t *testing.T, pool *pgxpool.Pool) {
		for _, tc := range cases {
			t.Run(tc.name, func(t *testing.T) {
				want := decodePublished(asJSONB(t, pool, tc.json))
				if verdict(want == nil) != tc.want {
					t.Fatalf("Go: %v", want)
				}
				_, err := call(t.Context(), pool, publishSQL, tc.json)
				if want == nil {
					if err != nil {
						t.Fatalf("Go accepts it, but SQL refuses: %v", err)
					}
					return
				}
				var invalid *events.InvalidError
				if !errors.As(want, &invalid) {
					t.Fatal(want)
				}
				if diff := gocmp.Diff(fieldsIn(events.IndexedError{Err: invalid}), refusedFields(err)); diff != "" {
					t.Errorf("(-Go +SQL):\n%s", diff)
				}
			})
		}
	})
}

// A null argument is an error, unlike an empty batch.
func TestPublishSQLNull(t *testing.T) {
	inLogAndOutbox(t, func(t *testing.T, pool *pgxpool.Pool) {
		for query, want := range map[string]string{
			`SELECT badged.publish(NULL)`:       "invalid event: must be a JSON object",
			`SELECT badged.publish_batch(NULL)`: "the batch must be a JSON array of events",
		} {
			if message, _ := refusal(pool.QueryRow(t.Context(), query).Scan(new(int64))); message != want {
				t.Errorf("%s: %s, want %s", query, message, want)
			}
		}
	})
}

func TestPublishSQLBatch(t *testing.T) {
	_, pool := newLog(t)
	many := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat(read+",", n), ",") + "]" }

	if position, err := call(t.Context(), pool, publishBatchSQL, `[]`); err != nil || position != 0 {
		t.Errorf("no events: position %d, error %v", position, err)
	}
	position, err := call(t.Context(), pool, publishBatchSQL, many(10_000))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, r := range rowsOf(t, pool, position) {
		n += len(eventsIn(t, r))
	}
	if n != 10_000 {
		t.Errorf("%d of 10,000 events are in the log", n)
	}
	for _, tc := range []struct{ name, json, want string }{
		{"one event", read, "the batch must be a JSON array of events"},
		{"10,001 events", many(10_001), "the batch has more than 10000 events"},
		{"a batch in a batch", "[" + read + ",[" + read + "]]", "event 1: invalid event: must be a JSON object"},
	} {
		_, err := call(t.Context(), pool, publishBatchSQL, tc.json)
		if message, _ := refusal(err); message != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, message, tc.want)
		}
	}
}

// The first hundred bad events are named, however many there are.
func TestPublishSQLNamesAHundredBadEvents(t *testing.T) {
	inLogAndOutbox(t, func(t *testing.T, pool *pgxpool.Pool) {
		_, err := call(t.Context(), pool, publishBatchSQL, "["+strings.Repeat("7,", 149)+"7]")
		message, detail := refusal(err)
		if want := "150 events are invalid; event 0: invalid event: must be a JSON object"; message != want {
			t.Errorf("%s, want %s", message, want)
		}
		var named []indexedField
		if err := json.Unmarshal([]byte(detail), &named); err != nil || len(named) != 100 || named[99].Index != 99 {
			t.Errorf("the detail names %d events, error %v", len(named), err)
		}
	})
}

// anyJSON draws values that are valid in some fields and not in others.
var anyJSON = rapid.SampledFrom([]string{
	`null`, `true`, `0`, `1`, `-1`, `1.5`, `1e3`, `9223372036854775808`,
	`""`, `"1.0"`, `"ann"`, `"a\"\\\n\u0085"`, `"mentions"`, `"application/json"`, `"2026-01-31T23:59:59Z"`, `"0000-01-01T00:00:00Z"`,
	`"message.delivered"`, `"user.read_all"`, `"room.posted"`, `"room.joined"`, `"conversation.expired"`, `"` + long(65) + `"`, `"` + long(129) + `"`, `"` + long(513) + `"`,
	`[]`, `["ann"]`, `["ann","bob"]`, `["ann","",7,"\u0001",["x"]]`, `{}`, `{"seq":1}`,
})

// anyObject draws an object with known and unknown names.
func anyObject(names ...string) *rapid.Generator[map[string]json.RawMessage] {
	return rapid.Custom(func(t *rapid.T) map[string]json.RawMessage {
		object := map[string]json.RawMessage{}
		for _, name := range rapid.SliceOfN(rapid.SampledFrom(append(names, "x", "data.seq", "", "\n", long(130))), 0, 3).Draw(t, "names") {
			object[name] = json.RawMessage(anyJSON.Draw(t, name))
		}
		return object
	})
}

// almostAnEvent draws a valid event with a few members changed or removed.
var almostAnEvent = rapid.Custom(func(t *rapid.T) string {
	var event map[string]json.RawMessage
	if err := json.Unmarshal([]byte(encode(t, plainEvent.Draw(t, "event"))), &event); err != nil {
		t.Fatal(err)
	}
	var data map[string]json.RawMessage
	if err := json.Unmarshal(event["data"], &data); err != nil {
		t.Fatal(err)
	}
	for name, value := range anyObject("conversation_id", "user_ids", "seq", "up_to_seq", "mentioned_user_ids", "mentions_all",
		"category", "message_id", "sender_id", "level", "by_app").Draw(t, "fields") {
		data[name] = value
	}
	delete(data, rapid.SampledFrom([]string{"", "conversation_id", "user_ids", "seq", "level"}).Draw(t, "field that is missing"))
	event["data"] = json.RawMessage(encode(t, data))
	for name, value := range anyObject("specversion", "id", "source", "type", "time", "traceparent", "tracestate", "data",
		"datacontenttype", "dataschema", "subject", "data_base64").Draw(t, "attributes") {
		event[name] = value
	}
	delete(event, rapid.SampledFrom([]string{"", "", "specversion", "id", "source", "type", "data"}).Draw(t, "attribute that is missing"))
	return encode(t, event)
})

// plainEvent draws a valid event.
var plainEvent = rapid.Custom(func(t *rapid.T) events.Event {
	return rapid.SampledFrom([]events.Event{
		{ID: "1", Source: "/chat", Type: events.MessageDelivered, Data: events.Data{ConversationID: "c", UserIDs: []string{"ann", "bob"}, Seq: 1, MentionedUserIDs: []string{"bob"}}},
		{ID: "1", Source: "/chat", Type: events.ConversationRead, Data: events.Data{ConversationID: "c", UserIDs: []string{"ann"}, UpToSeq: 1, ByApp: true}},
		{ID: "1", Source: "/chat", Type: events.ConversationLeft, Data: events.Data{ConversationID: "c", UserIDs: []string{"ann"}}},
		{ID: "1", Source: "/chat", Type: events.ConversationLevelSet, Data: events.Data{ConversationID: "c", UserIDs: []string{"ann"}, Level: events.LevelNone}},
		{ID: "1", Source: "/chat", Type: events.UserReadAll, Data: events.Data{UserIDs: []string{"ann"}, AllCategories: true}},
		{ID: "1", Source: "/chat", Type: events.RoomJoined, Data: events.Data{ConversationID: "c", UserIDs: []string{"ann"}, UpToSeq: 1}},
		{ID: "1", Source: "/chat", Type: events.RoomPosted, Data: events.Data{ConversationID: "c", Seq: 1, MentionedUserIDs: []string{"bob"}, MentionsAll: true}},
	}).Draw(t, "plain event")
})

// A batch gets the same verdict as in Go, with the same fields in the detail.
func TestPublishSQLRefusesBatchesLikeGo(t *testing.T) {
	inLogAndOutbox(t, func(t *testing.T, pool *pgxpool.Pool) {
		rapid.Check(t, func(t *rapid.T) {
			batch := rapid.SliceOfN(almostAnEvent, 1, 4).Draw(t, "batch")
			var bad events.BatchError
			for i, event := range batch {
				var invalid *events.InvalidError
				if errors.As(decodePublished(asJSONB(t, pool, event)), &invalid) {
					bad.Events = append(bad.Events, events.IndexedError{Index: i, Err: invalid})
				}
			}
			_, err := call(t.Context(), pool, publishBatchSQL, "["+strings.Join(batch, ",")+"]")
			if len(bad.Events) == 0 {
				if err != nil {
					t.Fatalf("Go accepts it, but SQL refuses: %v", err)
				}
				return
			}
			if diff := gocmp.Diff(fieldsIn(bad.Events...), refusedFields(err)); diff != "" {
				t.Fatalf("(-Go +SQL):\n%s", diff)
			}
		})
	})
}
