package ingest_test

import (
	"strings"
	"testing"

	"github.com/badged/badged/internal/bridge/ingest"
)

const structured = `{"specversion":"1.0","id":"7","source":"chat","type":"conversation.read","data":{"conversation_id":"c","user_ids":["ada"],"up_to_seq":3}}`

func binary(change func(m *ingest.Message)) ingest.Message {
	m := ingest.Message{
		Attributes: map[string]string{"specversion": "1.0", "id": "7", "source": "chat", "type": "conversation.read", "time": "2026-11-21T10:00:00Z"},
		Body:       []byte(`{"conversation_id":"c","user_ids":["ada"],"up_to_seq":3}`), ContentType: "application/json",
	}
	if change != nil {
		change(&m)
	}
	return m
}

// An event is the same in structured and binary mode.
func TestModes(t *testing.T) {
	one := ingest.Message{Body: []byte(structured)}
	two := binary(nil)
	for _, m := range []*ingest.Message{&one, &two} {
		e, _, err := ingest.Decode(m, "place")
		if err != nil || e.ID != "7" || e.Source != "chat" || e.Data.UpToSeq != 3 || e.Data.UserIDs[0] != "ada" {
			t.Errorf("%s %v: %+v %v", m.Body, m.Attributes, e, err)
		}
	}
}

// An event without an id gets the place of its message, which never changes.
func TestIDFromPlace(t *testing.T) {
	without := func(m *ingest.Message) { delete(m.Attributes, "id") }
	for _, m := range []ingest.Message{
		{Body: []byte(strings.Replace(structured, `"id":"7",`, "", 1))},
		{Body: []byte("\n " + strings.Replace(structured, `"id":"7",`, "", 1))},
		binary(without),
	} {
		e, text, err := ingest.Decode(&m, "redis/chat/1-0")
		if err != nil || e.ID != "redis/chat/1-0" || !strings.Contains(text, `"redis/chat/1-0"`) {
			t.Errorf("%s %v: %+v %v", m.Body, m.Attributes, e, err)
		}
	}
}

// A message that is no event is refused with the reason. The letter that keeps it can be
// retried once a release understands it.
func TestBadMessages(t *testing.T) {
	for _, c := range []struct {
		name string
		m    ingest.Message
		want string
		text string
	}{
		{"empty", ingest.Message{}, "it is empty", ""},
		{"no JSON", ingest.Message{Body: []byte("hello")}, "not valid JSON", "hello"},
		{"an array", ingest.Message{Body: []byte("[" + structured + "]")}, "must be a JSON object", "[" + structured + "]"},
		{"an object", ingest.Message{Body: []byte("{}")}, "specversion: is required", `{"id":"place"}`},
		{"an id that is null", ingest.Message{Body: []byte(strings.Replace(structured, `"7"`, "null", 1))}, "id: is required", ""},
		{"a misspelt field", ingest.Message{Body: []byte(strings.Replace(structured, "up_to_seq", "upto_seq", 1))}, "data.upto_seq", ""},
		{"an unknown attribute", binary(func(m *ingest.Message) { m.Attributes["colour"] = "red" }), "colour: is not a known field", ""},
		{"a type of badged", ingest.Message{Body: []byte(strings.Replace(structured, "conversation.read", "conversation.expired", 1))}, "is written by badged itself only", ""},
		{"XML", binary(func(m *ingest.Message) { m.ContentType = "text/xml" }), "datacontenttype: must be application/json", ""},
		{"data that is text", binary(func(m *ingest.Message) { m.Body = []byte("hello") }), "data: must be a JSON object", `"data":"hello"`},
		{"data that is no text", binary(func(m *ingest.Message) { m.Body = []byte{0xff} }), "data_base64: is not supported", `"data_base64":"/w=="`},
		{"no data", binary(func(m *ingest.Message) { m.Body = nil }), "data: is required", ""},
	} {
		_, text, err := ingest.Decode(&c.m, "place")
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(text, c.text) {
			t.Errorf("%s: %v, want %q; kept %s", c.name, err, c.want, text)
		}
	}
}

func TestAttributes(t *testing.T) {
	for header, want := range map[string]string{"ce_id": "id", "ce-specversion": "specversion", "Ce-Type": "type", "ce_": "", "cell": "", "content-type": ""} {
		if name, ok := ingest.AttributeOf(header); name != want || ok != (want != "") {
			t.Errorf("%s: %q %v", header, name, ok)
		}
	}
}
