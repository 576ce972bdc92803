// Package remains encodes what stays in the log in place of an event after one of its users
// was erased or went to another partition.
//
// It does not know who was erased. ADR 76 has the reasons.
package remains

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/badged/badged/events"
)

// Remains is the payload that replaces an event after one of its users was erased, if
// it is no event: `null` for nothing, or an object that begins with the member erased.
type Remains struct {
	// Event is the event without the user, nil if it named no other user.
	Event []byte
	// Members says how the event changed the number of members of rooms, nil if it did
	// not. Only a user.left_all changed that of several.
	Members []Members
}

// Members are users who were erased, as far as the room must know of them: the
// state of other members follows from that of the room.
type Members struct {
	// Type is [events.RoomJoined] or [events.RoomLeft], and Users how many users it made members, or none any
	// more. A join of users who are in another partition since this one was split has none: it
	// says that the room was there.
	Type           events.Type `json:"type"`
	ConversationID string      `json:"conversation_id"`
	Users          int         `json:"users"`
}

// remains is the form of Remains with members.
type remains struct {
	Erased []Members       `json:"erased"`
	Event  json.RawMessage `json:"event,omitempty"`
}

// nothing is the form of Remains without members or event.
const nothing = "null"

// erasedPrefix begins all other Remains. No event begins so.
const erasedPrefix = `{"erased":`

// Parse parses what the log has of an event, and reports whether that is
// Remains. It does not decode the event of it.
func Parse(payload []byte) (r Remains, ok bool) {
	if len(payload) == len(nothing) && string(payload) == nothing {
		return Remains{}, true
	}
	if !bytes.HasPrefix(payload, []byte(erasedPrefix)) {
		return Remains{}, false
	}
	var stored remains
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&stored); err != nil || len(stored.Erased) == 0 {
		return Remains{}, false
	}
	for _, m := range stored.Erased {
		if m.Type != events.RoomJoined && m.Type != events.RoomLeft || m.Users < 0 || m.Users == 0 && m.Type != events.RoomJoined || m.Users > events.MaxUsers || events.CheckID(m.ConversationID) != "" {
			return Remains{}, false
		}
	}
	return Remains{Event: stored.Event, Members: stored.Erased}, true
}

// Append appends the form of r to b.
func (r *Remains) Append(b []byte) ([]byte, error) {
	switch {
	case r.Members == nil && r.Event == nil:
		return append(b, nothing...), nil
	case r.Members == nil:
		return append(b, r.Event...), nil
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(remains{r.Members, r.Event}); err != nil {
		return nil, fmt.Errorf("encode what remains of an event: %w", err)
	}
	return append(b, bytes.TrimSpace(text.Bytes())...), nil
}

// EventIn returns the event in a payload of the log: the payload itself or, after one of
// its users was erased, the part that remains; nil if nothing does.
func EventIn(payload []byte) []byte {
	if r, ok := Parse(payload); ok {
		return r.Event
	}
	return payload
}
