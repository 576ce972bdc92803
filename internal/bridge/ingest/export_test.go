package ingest

import (
	"time"

	"github.com/badged/badged/events"
)

// Decode is decode.
func Decode(m *Message, id string) (events.Event, string, error) {
	e, text, err := decode(m, id)
	return e, string(text), err
}

// AttributeOf returns the name of the attribute that a header contains.
func AttributeOf(header string) (string, bool) {
	var m Message
	ok := m.addAttribute(header, "value")
	for name := range m.Attributes {
		return name, ok
	}
	return "", ok
}

// SourceOf returns the source of a broker for tests.
func SourceOf(name string, b Broker) Source {
	return Source{Name: name, Streams: []string{"chat"}, Shown: name + "://test", open: func() (Broker, error) { return b, nil }}
}

// SetSwitchTime sets for how long a refusal is no failure.
func (cfg *Config) SetSwitchTime(d time.Duration) { cfg.switchTime = d }
