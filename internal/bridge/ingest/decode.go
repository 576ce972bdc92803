package ingest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/badged/badged/events"
)

// addAttribute adds the CloudEvents attribute that a header contains in binary mode. It reports
// whether the header contains one. For the attribute id, the header is ce_id in Kafka and Redis,
// and ce-id in NATS.
func (m *Message) addAttribute(header, value string) bool {
	if len(header) < 4 || header[2] != '_' && header[2] != '-' || !strings.EqualFold(header[:2], "ce") {
		return false
	}
	if m.Attributes == nil {
		m.Attributes = map[string]string{}
	}
	m.Attributes[strings.ToLower(header[3:])] = value
	return true
}

// structuredType is the content type of events in structured mode. Attributes in the headers of
// such a message are copies for the broker, and are ignored.
const structuredType = "application/cloudevents+json"

// decode returns the event of a message, and the JSON text of the event. If the event is invalid,
// decode returns an error and the text. If the event has no id, it gets the given id.
func decode(m *Message, id string) (e events.Event, text []byte, err error) {
	text = m.Body
	if m.Attributes != nil && !strings.HasPrefix(m.ContentType, structuredType) {
		text = structured(m)
	}
	e, err = events.Decode(text)
	if err != nil {
		if with, ok := withID(text, id); ok {
			text = with
			e, err = events.Decode(text)
		}
	}
	if err == nil {
		err = e.CheckReserved()
	}
	return e, text, err
}

// structured converts a message in binary mode to JSON in structured mode.
func structured(m *Message) []byte {
	var b bytes.Buffer
	member := func(name string, value any) {
		if b.Len() == 0 {
			b.WriteByte('{')
		} else {
			b.WriteByte(',')
		}
		key, _ := json.Marshal(name) // strings and valid raw messages always encode
		text, _ := json.Marshal(value)
		b.Write(key)
		b.WriteByte(':')
		b.Write(text)
	}
	for _, name := range slices.Sorted(maps.Keys(m.Attributes)) {
		member(name, m.Attributes[name])
	}
	if _, has := m.Attributes["datacontenttype"]; !has && m.ContentType != "" {
		member("datacontenttype", m.ContentType)
	}
	switch {
	case json.Valid(m.Body):
		member("data", json.RawMessage(m.Body))
	case len(m.Body) == 0: // without data: events.Decode reports that the data is missing
	case utf8.Valid(m.Body):
		member("data", string(m.Body))
	default:
		member("data_base64", base64.StdEncoding.EncodeToString(m.Body))
	}
	b.WriteByte('}')
	return b.Bytes()
}

// withID adds an id to a JSON event. It returns false if the event already has an id or is not an
// object.
func withID(text []byte, id string) ([]byte, bool) {
	var members map[string]json.RawMessage
	if json.Unmarshal(text, &members) != nil || members == nil {
		return nil, false
	}
	if _, has := members["id"]; has {
		return nil, false
	}
	key, err := json.Marshal(id)
	if err != nil {
		return nil, false
	}
	rest := bytes.TrimLeft(text, " \t\r\n")[1:] // after the brace
	with := slices.Concat([]byte(`{"id":`), key)
	if len(members) > 0 {
		with = append(with, ',')
	}
	return append(with, rest...), true
}
