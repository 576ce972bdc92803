package events_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/badged/badged/events"
)

// text draws a string of up to maxBytes that an event may hold.
func text(maxBytes int) *rapid.Generator[string] {
	printable := rapid.Rune().Filter(func(r rune) bool { return r >= 0x20 && (r < 0x7f || r > 0x9f) && utf8.ValidRune(r) })
	return rapid.StringOfN(printable, 1, -1, maxBytes)
}

// optional draws a string, or "".
func optional(maxBytes int) *rapid.Generator[string] {
	return rapid.OneOf(rapid.Just(""), text(maxBytes))
}

// anyNotification draws a notification, or none.
var anyNotification = rapid.Custom(func(t *rapid.T) events.Notification {
	const limit = 40
	n := events.Notification{Title: optional(limit).Draw(t, "title"), Body: optional(limit).Draw(t, "body")}
	if n.Title != "" || n.Body != "" {
		n.Data = rapid.MapOfN(optional(limit), optional(limit), 0, 3).Draw(t, "data")
	}
	return n
})

// anyUntil draws a time at which a level may end.
var anyUntil = rapid.Custom(func(t *rapid.T) time.Time {
	const first, last = 946684800, 253402300799 // the years 2000 to 9999
	return time.Unix(rapid.Int64Range(first, last).Draw(t, "seconds"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanoseconds")).UTC()
})

// anyEvent draws a valid event of any type, up to the limits of every field
// but the number of users.
var anyEvent = rapid.Custom(func(t *rapid.T) events.Event {
	e := events.Event{
		ID:          text(events.MaxNameBytes).Draw(t, "id"),
		Source:      text(events.MaxNameBytes).Draw(t, "source"),
		TraceParent: optional(events.MaxTraceBytes).Draw(t, "traceparent"),
		TraceState:  optional(events.MaxTraceBytes).Draw(t, "tracestate"),
		PublishedBy: optional(events.MaxNameBytes).Draw(t, "publishedby"),
		Type: rapid.SampledFrom([]events.Type{
			events.MessageDelivered, events.ConversationRead, events.MessageRecalled, events.ConversationMarkedUnread,
			events.ConversationLevelSet, events.ConversationLeft, events.UserReadAll, events.ConversationExpired, events.ConversationLevelEnded,
			events.RoomJoined, events.RoomLeft, events.RoomPosted, events.RoomRecalled,
		}).Draw(t, "type"),
	}
	if rapid.Bool().Draw(t, "timed") {
		const first, last = -62135596800, 253402300799 // the years 1 to 9999
		e.Time = time.Unix(rapid.Int64Range(first, last).Draw(t, "seconds"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanoseconds")).UTC()
	}
	id, seq, d := text(events.MaxIDBytes), rapid.Int64Min(1), &e.Data
	if e.Type != events.RoomPosted && e.Type != events.RoomRecalled {
		d.UserIDs = rapid.SliceOfN(id, 1, 5).Draw(t, "user_ids")
	}
	if e.Type != events.UserReadAll {
		d.ConversationID = id.Draw(t, "conversation_id")
	}
	switch e.Type {
	case events.MessageDelivered:
		d.Seq = seq.Draw(t, "seq")
		d.MentionedUserIDs = rapid.SliceOf(rapid.SampledFrom(d.UserIDs)).Draw(t, "mentioned_user_ids")
		d.Category = rapid.OneOf(rapid.Just(""), rapid.Map(rapid.SliceOfN(rapid.StringMatching(`[a-zé👋 ]{1,20}`), 1, 3), func(parts []string) string { return strings.Join(parts, "/") })).Draw(t, "category")
		d.MessageID = optional(events.MaxIDBytes).Draw(t, "message_id")
		d.SenderID = optional(events.MaxIDBytes).Draw(t, "sender_id")
		d.Notification = anyNotification.Draw(t, "notification")
	case events.RoomPosted:
		d.Seq = seq.Draw(t, "seq")
		d.MentionedUserIDs = rapid.SliceOfN(id, 0, 5).Draw(t, "mentioned_user_ids")
		d.MentionsAll = rapid.Bool().Draw(t, "mentions_all")
		d.Category = rapid.OneOf(rapid.Just(""), rapid.Map(rapid.SliceOfN(rapid.StringMatching(`[a-zé👋 ]{1,20}`), 1, 3), func(parts []string) string { return strings.Join(parts, "/") })).Draw(t, "category")
		d.MessageID = optional(events.MaxIDBytes).Draw(t, "message_id")
		d.SenderID = optional(events.MaxIDBytes).Draw(t, "sender_id")
		d.Notification = anyNotification.Draw(t, "notification")
	case events.MessageRecalled, events.RoomRecalled:
		d.Seq = seq.Draw(t, "seq")
	case events.ConversationRead:
		d.UpToSeq = seq.Draw(t, "up_to_seq")
		d.ByApp = rapid.Bool().Draw(t, "by_app")
	case events.ConversationExpired:
		d.UpToSeq = seq.Draw(t, "up_to_seq")
	case events.ConversationLeft:
		if rapid.Bool().Draw(t, "ahead of the log") {
			d.UpToSeq = seq.Draw(t, "up_to_seq")
		}
	case events.ConversationLevelSet:
		d.Level = rapid.SampledFrom([]events.Level{events.LevelAll, events.LevelMentions, events.LevelDirectMentions, events.LevelNone}).Draw(t, "level")
		if rapid.Bool().Draw(t, "for a time") {
			d.Until = anyUntil.Draw(t, "until")
		}
	case events.ConversationLevelEnded:
		d.Until = anyUntil.Draw(t, "until")
	case events.RoomJoined:
		d.Level = rapid.SampledFrom([]events.Level{"", events.LevelAll, events.LevelMentions, events.LevelDirectMentions, events.LevelNone}).Draw(t, "level")
		d.UpToSeq = rapid.Int64Min(0).Draw(t, "up_to_seq")
	case events.UserReadAll:
		d.Category = rapid.OneOf(rapid.Just(""), rapid.Map(rapid.SliceOfN(rapid.StringMatching(`[a-zé👋 ]{1,20}`), 1, 3), func(parts []string) string { return strings.Join(parts, "/") })).Draw(t, "category")
		d.AllCategories = d.Category == ""
	}
	return e
})

// sameEvent treats nil and empty slices as equal.
var sameEvent = cmpopts.EquateEmpty()

func TestDecodeIsTheInverseOfMarshal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := anyEvent.Draw(t, "event")
		if err := e.Validate(); err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		again, err := events.Decode(b)
		if err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if diff := cmp.Diff(e, again, sameEvent); diff != "" {
			t.Fatalf("%s decodes to (-want +got):\n%s", b, diff)
		}
		if spacedOut, err := events.Decode(spaced(t, b)); err != nil || !cmp.Equal(again, spacedOut, sameEvent) {
			t.Fatalf("%s with spaces decodes to %+v, %v", b, spacedOut, err)
		}
	})
}

// Decode agrees with jsontext on what is JSON, also for events with bytes changed, lost or
// doubled, and refuses all else.
func TestDecodeKnowsJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, err := json.Marshal(anyEvent.Draw(t, "event"))
		if err != nil {
			t.Fatal(err)
		}
		if rapid.Bool().Draw(t, "spaced") {
			b = spaced(t, b)
		}
		for range rapid.IntRange(0, 2).Draw(t, "changes") {
			at := rapid.IntRange(0, len(b)-1).Draw(t, "at")
			switch rapid.IntRange(0, 2).Draw(t, "change") {
			case 0:
				b[at] = rapid.OneOf(rapid.SampledFrom([]byte(`"{}[]:,\0 x`)), rapid.Byte()).Draw(t, "byte")
			case 1:
				b = slices.Delete(b, at, at+1)
			case 2:
				end := rapid.IntRange(at, len(b)).Draw(t, "end")
				b = slices.Insert(b, end, b[at:end]...)
			}
		}
		checkSyntax(t, b)
	})
}

// spaced returns JSON with its members in another order and spaces between them, as
// publishers and Postgres write it.
func spaced(t rapid.TB, b []byte) []byte {
	v := jsontext.Value(slices.Clone(b))
	if err := v.Format(jsontext.ReorderRawObjects(true), jsontext.SpaceAfterColon(true), jsontext.SpaceAfterComma(true)); err != nil {
		t.Fatal(err)
	}
	return v
}

// checkSyntax fails if Decode and jsontext disagree on whether b is JSON.
func checkSyntax(t rapid.TB, b []byte) {
	t.Helper()
	_, err := events.Decode(b)
	dec := jsontext.NewDecoder(bytes.NewReader(b))
	broken := dec.SkipValue()
	if broken == nil {
		if _, err := dec.ReadToken(); err != nil && !errors.Is(err, io.EOF) {
			broken = err
		}
	}
	said := err != nil && strings.Contains(err.Error(), "is not valid JSON: ")
	if said != (broken != nil) || strings.HasSuffix(fmt.Sprint(err), "JSON: ") {
		t.Fatalf("%s is decoded with %v, but as JSON with %v", b, err, broken)
	}
}

// Validate and Decode report the same errors: backends in Go and in other
// languages learn the same.
func TestValidateAndDecodeAgree(t *testing.T) {
	with := func(typ events.Type, change func(*events.Event)) events.Event {
		e := events.Event{
			ID: "1", Source: "/chat", Type: typ,
			Data: events.Data{ConversationID: "c", UserIDs: []string{"ann"}},
		}
		change(&e)
		return e
	}
	for _, tc := range []struct {
		name  string
		event events.Event
		// json is the event as JSON, for cases where Marshal would leave out
		// the fault.
		json string
	}{
		{name: "empty"},
		{"no users", with(events.ConversationLeft, func(e *events.Event) { e.Data.UserIDs = nil }), envelope(events.ConversationLeft, `"conversation_id":"c","user_ids":[]`)},
		{"too many users", with(events.ConversationLeft, func(e *events.Event) { e.Data.UserIDs = make([]string, events.MaxUsers+1) }), ""},
		{"a long user id", with(events.ConversationLeft, func(e *events.Event) { e.Data.UserIDs[0] = long(129) }), ""},
		{"an empty user id", with(events.ConversationLeft, func(e *events.Event) { e.Data.UserIDs[0] = "" }), ""},
		{"a control character", with(events.ConversationLeft, func(e *events.Event) { e.Data.UserIDs[0] = "a\u0085" }), ""},
		{"no conversation", with(events.ConversationLeft, func(e *events.Event) { e.Data.ConversationID = "" }), envelope(events.ConversationLeft, `"conversation_id":"","user_ids":["ann"]`)},
		{"a long conversation id", with(events.ConversationLeft, func(e *events.Event) { e.Data.ConversationID = long(129) }), ""},
		{"no seq", with(events.MessageDelivered, func(*events.Event) {}), envelope(events.MessageDelivered, who+`,"seq":0`)},
		{"a negative seq", with(events.MessageRecalled, func(e *events.Event) { e.Data.Seq = -1 }), ""},
		{"no up_to_seq", with(events.ConversationRead, func(*events.Event) {}), envelope(events.ConversationRead, who+`,"up_to_seq":0`)},
		{"a negative up_to_seq", with(events.ConversationExpired, func(e *events.Event) { e.Data.UpToSeq = -1 }), ""},
		{"a last message that is negative", with(events.ConversationLeft, func(e *events.Event) { e.Data.UpToSeq = -1 }), ""},
		{"a mark by an app", with(events.ConversationMarkedUnread, func(e *events.Event) { e.Data.ByApp = true }), ""},
		{"no level", with(events.ConversationLevelSet, func(*events.Event) {}), envelope(events.ConversationLevelSet, who+`,"level":""`)},
		{"an unknown level", with(events.ConversationLevelSet, func(e *events.Event) { e.Data.Level = "loud" }), ""},
		{"mentions of others", with(events.MessageDelivered, func(e *events.Event) { e.Data.Seq, e.Data.MentionedUserIDs = 1, []string{"bob"} }), ""},
		{"a mentioned user with a long id", with(events.RoomPosted, func(e *events.Event) {
			e.Data.UserIDs, e.Data.Seq, e.Data.MentionedUserIDs = nil, 1, []string{"bob", long(129)}
		}), ""},
		{"a message to a room for users", with(events.RoomPosted, func(e *events.Event) { e.Data.Seq = 1 }), ""},
		{"a long category", with(events.UserReadAll, func(e *events.Event) { e.Data.ConversationID, e.Data.Category = "", long(65) }), ""},
		{"a field of another type", with(events.UserReadAll, func(e *events.Event) { e.Data.AllCategories = true }), ""},
		{"an unknown type", with("conversation.loud", func(*events.Event) {}), ""},
		{"a long id and source", with(events.ConversationLeft, func(e *events.Event) { e.ID, e.Source = long(257), long(257) }), ""},
		{"a long trace context", with(events.ConversationLeft, func(e *events.Event) { e.TraceParent, e.TraceState = long(513), long(513) }), ""},
		{"a time that is too early in UTC", with(events.ConversationLeft, func(e *events.Event) {
			e.Time = time.Date(1, 1, 1, 0, 0, 0, 0, time.FixedZone("", 2*60*60))
		}), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			said := tc.event.Validate()
			if said == nil {
				t.Fatal("is valid")
			}
			b, err := json.Marshal(tc.event)
			if err != nil {
				t.Fatal(err)
			}
			if tc.json != "" {
				b = []byte(tc.json)
			}
			_, err = events.Decode(b)
			if diff := cmp.Diff(said.Error(), fmt.Sprint(err)); diff != "" {
				t.Errorf("(-Validate +Decode):\n%s", diff)
			}
		})
	}
}

// A struct whose category was not set reads nothing: it must say that all are meant.
func TestReadingEveryCategoryIsExplicit(t *testing.T) {
	for want, d := range map[string]events.Data{
		"<nil>": {UserIDs: []string{"ann"}, AllCategories: true},
		"invalid event: data.category: must not be empty: to name every category, set AllCategories":                                {UserIDs: []string{"ann"}},
		"invalid event: data.category: must be empty if AllCategories is set, which only a user.read_all or user.seen_all may have": {UserIDs: []string{"ann"}, AllCategories: true, Category: "likes"},
		"invalid event: data.conversation_id: is not a field of user.read_all":                                                      {UserIDs: []string{"ann"}, AllCategories: true, ConversationID: "c"},
	} {
		e := events.Event{ID: "1", Source: "chat", Type: events.UserReadAll, Data: d}
		if got := fmt.Sprint(e.Validate()); got != want {
			t.Errorf("%+v: %s, want %s", d, got, want)
		}
	}
	e := delivered("1", "ann")
	if e.Data.AllCategories = true; e.Validate() == nil {
		t.Error("a message of all categories is valid")
	}
}

// The year 10000 cannot be written as RFC 3339; the time is judged in UTC.
func TestTimeThatIsTooLateInUTC(t *testing.T) {
	e := delivered("1", "ann")
	e.Time = time.Date(9999, 12, 31, 23, 0, 0, 0, time.FixedZone("", -2*60*60))
	const want = "invalid event: time: must lie in the years 1 to 9999"
	if err := e.Validate(); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// Only a Go struct can hold invalid UTF-8; JSON cannot.
func TestInvalidUTF8(t *testing.T) {
	e := delivered("1", "ann\xff")
	const want = "invalid event: data.user_ids[0]: must be valid UTF-8"
	if err := e.Validate(); err == nil || err.Error() != want {
		t.Errorf("Validate: %v, want %s", err, want)
	}
	if b, err := json.Marshal(e); err == nil {
		t.Errorf("it was encoded as %s", b)
	}
}

// An event without a time is encoded without one.
func TestMarshalOmitsAbsentFields(t *testing.T) {
	b, err := json.Marshal(delivered("1", "ann"))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"specversion":"1.0","id":"1","source":"/chat","type":"message.delivered","data":{"conversation_id":"c","user_ids":["ann"],"seq":1}}`
	if diff := cmp.Diff(want, string(b)); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
}

// Decode does not panic on any input. Events that it accepts are valid and
// survive encoding; errors have only text that can be shown and stored.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		``, `null`, `{}`, `[]`, `{`, read, read + read,
		envelope(events.MessageDelivered, who+`,"seq":9223372036854775807,"mentioned_user_ids":["ann"],"category":"likes","message_id":"m","sender_id":"bob"`),
		envelope(events.MessageRecalled, who+`,"seq":-0`),
		envelope(events.ConversationLevelSet, who+`,"level":"none"`),
		envelope(events.ConversationRead, who+`,"up_to_seq":7,"by_app":true`),
		envelope(events.ConversationRead, who+`,"by_app":false,"up_to_seq":7`),
		envelope(events.ConversationLeft, who+`,"up_to_seq":7`),
		envelope(events.RoomJoined, who+`,"up_to_seq":7,"level":"mentions"`),
		envelope(events.RoomLeft, who),
		envelope(events.RoomPosted, `"conversation_id":"c","seq":7,"mentioned_user_ids":["bob","cem"],"mentions_all":true,"category":"likes","message_id":"m","sender_id":"ann"`),
		envelope(events.RoomRecalled, `"conversation_id":"c","seq":7`),
		envelope(events.UserReadAll, `"user_ids":["\u0000","\ud83d\udc4b","\ud83d"]`),
		envelope(events.ConversationLeft, `"\u0000":{"a":[1e400]},"user_ids":[[]]`),
		attribute(`"time":"2026-01-31T23:59:59.5+01:00","traceparent":"a","tracestate":null`),
		attribute(`"` + strings.Repeat("用", 100) + `":1,"datacontenttype":"text/json"`),
		strings.Replace(read, "ann", "\xff\x00", 1),
		strings.Replace(read, `"id"`, `"id":"7","id"`, 1),
		strings.Replace(read, `"specversion":"1.0",`, ``, 1),
		envelope(events.ConversationLeft, who+`,"conversation_id":"d"`),
		envelope(events.MessageDelivered, who),
	} {
		f.Add([]byte(seed))
	}
	for _, tc := range nullCases(f) {
		f.Add([]byte(tc.Event))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		checkSyntax(t, b)
		e, err := events.Decode(b)
		if err != nil {
			checkRefusal(t, err)
			return
		}
		if err := e.Validate(); err != nil {
			t.Fatalf("decoded %+v, which is invalid: %v", e, err)
		}
		encoded, err := json.Marshal(e)
		if err != nil {
			t.Fatalf("decoded %+v, which does not encode: %v", e, err)
		}
		again, err := events.Decode(encoded)
		if err != nil {
			t.Fatalf("encoded as %s, which does not decode: %v", encoded, err)
		}
		if diff := cmp.Diff(e, again, sameEvent); diff != "" {
			t.Fatalf("changed on the way through %s (-before +after):\n%s", encoded, diff)
		}
	})
}

func checkRefusal(t *testing.T, err error) {
	t.Helper()
	var invalid *events.InvalidError
	if !errors.As(err, &invalid) || len(invalid.Fields) == 0 || len(invalid.Fields) > 20 {
		t.Fatalf("refused with %#v", err)
	}
	said := err.Error()
	if !utf8.ValidString(said) || strings.ContainsFunc(said, func(r rune) bool { return r < 0x20 || r >= 0x7f && r <= 0x9f }) {
		t.Fatalf("refused with a message that cannot be shown: %q", said)
	}
}
