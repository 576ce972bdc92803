package httpapi_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/server/httpapi"
)

// delivered returns a valid event.
func delivered(id string) string {
	return fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"test","type":"message.delivered",`+
		`"data":{"conversation_id":"c","seq":1,"user_ids":["ada"]}}`, id)
}

const (
	single = "application/cloudevents+json"
	batch  = "application/cloudevents-batch+json"
	plain  = "application/json"
	ndjson = "application/x-ndjson"
)

func TestPublishAcceptsEveryForm(t *testing.T) {
	for _, test := range []struct {
		name, contentType, body string
		ids                     []string
	}{
		{"a CloudEvent", single, delivered("1"), []string{"1"}},
		{"a CloudEvent with charset", single + "; charset=utf-8", delivered("1"), []string{"1"}},
		{"a type in capitals", "Application/JSON", delivered("1"), []string{"1"}},
		{"an object", plain, delivered("1"), []string{"1"}},
		{"an array", plain, "[" + delivered("1") + "," + delivered("2") + "]", []string{"1", "2"}},
		{"an array after white space", plain, " \r\n\t[" + delivered("1") + "] \n", []string{"1"}},
		{"a batch", batch, "[" + delivered("1") + ",\n" + delivered("2") + "]", []string{"1", "2"}},
		{"a line", ndjson, delivered("1"), []string{"1"}},
		{"lines", ndjson, delivered("1") + "\n" + delivered("2") + "\n", []string{"1", "2"}},
		{"lines with carriage returns and blanks between", ndjson, delivered("1") + "\r\n\r\n  \n" + delivered("2") + "\r\n\n", []string{"1", "2"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t)
			a := post(t, f, "/v1/events", test.contentType, test.body)
			if want := fmt.Sprintf("{\"accepted\":%d}\n", len(test.ids)); a.status != http.StatusAccepted || a.body != want {
				t.Fatalf("answer is %d %s, want 202 %s", a.status, a.body, want)
			}
			if got := a.header.Get(httpapi.PositionHeader); got != "4711" {
				t.Errorf("%s = %q, want the transaction", httpapi.PositionHeader, got)
			}
			if got := a.header.Get("Content-Type"); got != "application/json" {
				t.Errorf("Content-Type = %q", got)
			}
			if len(f.appender.calls) != 1 {
				t.Fatalf("%d appends, want one for all", len(f.appender.calls))
			}
			var ids []string
			for _, e := range f.appender.calls[0] {
				ids = append(ids, e.ID)
			}
			if diff := cmp.Diff(test.ids, ids); diff != "" {
				t.Errorf("appended events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPublishKeepsAllFields(t *testing.T) {
	f := newFixture(t)
	post(t, f, "/v1/events", single, `{"specversion":"1.0","id":"m1","source":"chat","type":"message.delivered",
		"data":{"conversation_id":"c1","seq":12,"user_ids":["ada","ben"],"mentioned_user_ids":["ben"],"category":"likes","sender_id":"eve"}}`)
	want := [][]events.Event{{{
		ID: "m1", Source: "chat", PublishedBy: "chat", Type: events.MessageDelivered,
		Data: events.Data{
			ConversationID: "c1", Seq: 12, UserIDs: []string{"ada", "ben"},
			MentionedUserIDs: []string{"ben"}, Category: "likes", SenderID: "eve",
		},
	}}}
	if diff := cmp.Diff(want, f.appender.calls); diff != "" {
		t.Errorf("appended (-want +got):\n%s", diff)
	}
}

func TestPublishRefuses(t *testing.T) {
	const unsupported = "415 send events with Content-Type application/json, application/cloudevents+json, " +
		"application/cloudevents-batch+json or application/x-ndjson"
	const invalid = "400 some events are invalid; nothing was stored\n"
	const badType = "400 some events are invalid; nothing was stored" + theTypes
	for _, test := range []struct{ name, contentType, body, want string }{
		{"no content type", "", delivered("1"), unsupported},
		{"curl's default content type", "application/x-www-form-urlencoded", delivered("1"), unsupported},
		{"text", "text/plain", delivered("1"), unsupported},
		{"a content type that makes no sense", "application/json; =", delivered("1"), unsupported},
		{"protobuf", "application/cloudevents+protobuf", delivered("1"), unsupported},

		{"nothing", plain, "", "400 the body contains no event"},
		{"white space", single, " \n", "400 the body contains no event"},
		{"an empty array", plain, "[]", "400 the body contains no event"},
		{"an empty batch", batch, " [ ] ", "400 the body contains no event"},
		{"blank lines", ndjson, "\n\n", "400 the body contains no event"},
		{"an empty batch body", batch, "", "400 the body is not a JSON array; nothing was stored"},
		{"an object as a batch", batch, delivered("1"), "400 the body is not a JSON array; nothing was stored"},
		{"an array as one event", single, "[" + delivered("1") + "]", invalid + "event 0 : must be a JSON object"},
		{"two objects", plain, delivered("1") + delivered("2"), invalid + "event 0 : must be one JSON object, with nothing after it"},
		{"two arrays", plain, "[" + delivered("1") + "][]", "400 unexpected data after the JSON array; nothing was stored"},
		{"a number", plain, "7", invalid + "event 0 : must be a JSON object"},

		{
			"JSON that breaks in the first of an array", batch, `[{"id":}`,
			invalid + `event 0 : is not valid JSON: invalid character '}' at start of value at byte 7 of the body`,
		},
		{
			"JSON that breaks in the middle of an array", batch, "[" + delivered("1") + `,{"id" "2"},` + delivered("3") + "]",
			invalid + `event 1 : is not valid JSON: invalid character '"' after object name (expecting ':') at byte 139 of the body`,
		},
		{
			"an array that is cut off", plain, "[" + delivered("1") + "," + delivered("2")[:40],
			invalid + "event 1 : is not valid JSON: the body ends too early",
		},
		{
			"an array without its end", plain, "[" + delivered("1"),
			invalid + "event 1 : is not valid JSON: the body ends too early",
		},
		{
			"lines of which one is broken", ndjson, delivered("1") + "\n{\"id\":\n" + delivered("3"),
			invalid + "event 1 : is not valid JSON: it ends too early at byte 7",
		},
		{
			"a bad event before broken JSON: both are reported", plain, `[{"id":"1"},nope`,
			badType + `event 0 specversion: is required
event 0 source: is required
event 0 type: is required
event 0 data: is required
event 1 : is not valid JSON: invalid character 'o' in literal null (expecting 'u') at byte 13 of the body`,
		},
		{
			"every bad event and field is named", plain, `[
				` + delivered("good") + `,
				{"specversion":"1.0","id":"2","source":"s","type":"message.delivered","data":{"conversation_id":"c","seq":0,"user_ids":["ada",""]}},
				` + delivered("good too") + `,
				{"specversion":"1.0","id":"4","source":"s","type":"conversation.read","data":{"conversation_id":"","user_ids":[],"up_to_seq":"nine"}},
				{"specversion":"1.0","id":"5","source":"s","type":"message.lost","data":{}},
				{"specversion":"1.0","id":"6","source":"s","type":"user.read_all","data":{"user_ids":["ada"],"seq":3},"data2":1}
			]`,
			badType + `event 1 data.user_ids[1]: must not be empty
event 1 data.seq: must be at least 1, is 0
event 3 data.up_to_seq: must be a whole number from 1 to 9223372036854775807, is "nine"
event 3 data.conversation_id: must not be empty
event 3 data.user_ids: must name at least one user
event 4 type: "message.lost" is not a type of event
event 5 data2: is not a known field
event 5 data.seq: is not a field of user.read_all`,
		},
		{
			"a field that only badged may write", single,
			`{"specversion":"1.0","id":"1","source":"s","type":"room.joined","data":{"conversation_id":"c","user_ids":["ada"],"seq":3}}`,
			invalid + "event 0 data.seq: is not a field of room.joined",
		},
		{
			"a type that only badged may write", single,
			`{"specversion":"1.0","id":"1","source":"s","type":"conversation.expired","data":{"conversation_id":"c","user_ids":["ada"],"up_to_seq":3}}`,
			badType + "event 0 type: is written by badged itself only",
		},
		{
			"the end of a level, which only badged may write", single,
			`{"specversion":"1.0","id":"1","source":"s","type":"conversation.level_ended","data":{"conversation_id":"c","user_ids":["ada"],"until":"2026-01-31T23:59:59Z"}}`,
			badType + "event 0 type: is written by badged itself only",
		},
		{
			"a level until a time in words", single,
			`{"specversion":"1.0","id":"1","source":"s","type":"conversation.level_set","data":{"conversation_id":"c","user_ids":["ada"],"level":"none","until":"tomorrow"}}`,
			invalid + `event 0 data.until: must be an RFC 3339 time such as 2026-01-31T23:59:59Z, is "tomorrow"`,
		},
		{
			"an attribute that only badged may write", single,
			`{"specversion":"1.0","id":"1","source":"s","publishedby":"crm","type":"user.read_all","data":{"user_ids":["ada"]}}`,
			invalid + "event 0 publishedby: is written by badged itself only",
		},
		{
			"a name that is given twice", plain, "[" + delivered("1") + `,{"id":"a","id":"b"}]`,
			invalid + `event 1 : is not valid JSON: duplicate object member name at byte 10`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t)
			a := post(t, f, "/v1/events", test.contentType, test.body)
			if diff := cmp.Diff(test.want, a.story(t)); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			if len(f.appender.calls) > 0 {
				t.Errorf("appended %v", f.appender.calls)
			}
			if f.log.Len() > 0 {
				t.Errorf("a publisher's mistake was logged: %s", f.log)
			}
		})
	}
}

// theTypes follows if the type of an event is at fault.
const theTypes = "; the types of events are message.delivered, conversation.read, message.recalled, message.changed, conversation.marked_unread, conversation.reset, conversation.seen, conversation.level_set, conversation.left, category.level_set, user.read_all, user.seen_all, user.left_all, room.joined, room.left, room.posted, room.recalled, room.changed, room.reset\n"

func TestPublishNamesNoMoreThanAHundredBadEvents(t *testing.T) {
	a := post(t, newFixture(t), "/v1/events", ndjson, strings.Repeat("7\n", 500))
	if lines := strings.Split(a.story(t), "\n"); len(lines) != 101 || lines[100] != "event 99 : must be a JSON object" {
		t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
	}
}

func TestPublishReportsErrorsOfTheLog(t *testing.T) {
	f := newFixture(t)
	f.appender.err = fmt.Errorf("append: %w", &events.BatchError{Events: []events.IndexedError{
		{Index: 0, Err: &events.InvalidError{Fields: []events.FieldError{{Field: "data.seq", Message: "is odd"}}}},
	}})
	a := post(t, f, "/v1/events", plain, "["+delivered("1")+"]")
	if want := "400 some events are invalid; nothing was stored\nevent 0 data.seq: is odd"; a.story(t) != want {
		t.Errorf("answer is %s", a.story(t))
	}
}

func TestPublishLimits(t *testing.T) {
	full := delivered("1") + strings.Repeat(" ", httpapi.MaxBodyBytes-len(delivered("1")))
	lines := strings.Repeat(delivered("1")+"\n", httpapi.MaxEvents)
	var crowd []string
	for i := range 100 {
		crowd = append(crowd, fmt.Sprintf("%q", fmt.Sprint("u", i)))
	}
	crowded := strings.Replace(delivered("1"), `"user_ids":["ada"]`, `"user_ids":[`+strings.Join(crowd, ",")+`]`, 1) + "\n"
	for _, test := range []struct {
		name, contentType, body string
		appended                int
		want                    string
	}{
		{"events for 249,984 partitions", ndjson, strings.Repeat(crowded, 3906), 3906, ""},
		{"events for 250,048 partitions", ndjson, strings.Repeat(crowded, 3907), 0, "413 the events go to 250048 partitions, counted for each event, and one request may have at most 250000: publish them in several; nothing was stored"},
		{"8 MiB", plain, full, 1, ""},
		{"8 MiB and a byte", plain, full + " ", 0, "413 the body has more than 8388608 bytes; nothing was stored"},
		{"10,000 events", ndjson, lines, 10_000, ""},
		{"10,001 events", ndjson, lines + delivered("2"), 0, "413 the body has more than 10000 events; nothing was stored"},
		{"10,001 events in an array", batch, "[" + strings.ReplaceAll(lines, "\n", ",") + delivered("2") + "]", 0, "413 the body has more than 10000 events; nothing was stored"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t)
			a := post(t, f, "/v1/events", test.contentType, test.body)
			appended := 0
			for _, evs := range f.appender.calls {
				appended += len(evs)
			}
			if appended != test.appended {
				t.Errorf("appended %d events, want %d", appended, test.appended)
			}
			if test.want == "" {
				if a.status != http.StatusAccepted {
					t.Errorf("answer is %d %s", a.status, a.body)
				}
			} else if got := a.story(t); got != test.want {
				t.Errorf("answer is %s, want %s", got, test.want)
			}
		})
	}
}

// brokenBody is a body whose sender disconnects in the middle.
type brokenBody struct{}

func (brokenBody) Read([]byte) (int, error) { return 0, errors.New("connection reset by 203.0.113.9") }

func TestPublishOfABodyThatBreaksOff(t *testing.T) {
	f := newFixture(t)
	r := newRequest(t, http.MethodPost, "/v1/events", brokenBody{})
	r.Header.Set("Content-Type", plain)
	if got, want := send(t, f, r).story(t), "400 the body could not be read to its end; nothing was stored"; got != want {
		t.Errorf("answer is %s, want %s", got, want)
	}
	if len(f.appender.calls) > 0 {
		t.Error("something was appended")
	}
}
