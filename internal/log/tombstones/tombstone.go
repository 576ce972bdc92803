// Package tombstones encodes tombstones. A tombstone replaces an event in the log after a user
// of the event was erased, or was assigned to another partition by a split.
//
// It does not know who was erased. ADR 76 has the reasons.
package tombstones

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/badged/badged/events"
)

// Tombstone is the content of a tombstone, the payload that replaces an event. If Members is
// nil, the payload is the remaining event, or `null` if Event is nil too. Otherwise the
// payload is an object that begins with the erased members.
type Tombstone struct {
	// Event is the event without the removed users, nil if it named no other users.
	Event []byte
	// Members says how the erased part of the event changed the numbers of members of rooms; nil
	// if no number changed. Only an event of the type user.left_all changes several rooms.
	Members []Members
}

// Members counts the erased users of an event that made users join or leave a room. A replay of
// the log needs this count: the states of the remaining members depend on the state of the room.
type Members struct {
	// Type is [events.RoomJoined] or [events.RoomLeft]. Users is the number of users who
	// joined or left. If a split assigned all users of a join to the other partition, Users is
	// 0: the tombstone then only records that the room existed.
	Type           events.Type `json:"type"`
	ConversationID string      `json:"conversation_id"`
	Users          int         `json:"users"`
}

// tombstoneJSON is the JSON of Tombstone with members.
type tombstoneJSON struct {
	Erased []Members       `json:"erased"`
	Event  json.RawMessage `json:"event,omitempty"`
}

// nothing is the JSON of Tombstone without members or event.
const nothing = "null"

// erasedPrefix begins the JSON of Tombstone with Members. No event begins with it.
const erasedPrefix = `{"erased":`

// Parse parses a payload of the log. It returns false if the payload is an event and not a
// tombstone. It does not decode the event in a tombstone.
func Parse(payload []byte) (r Tombstone, ok bool) {
	if len(payload) == len(nothing) && string(payload) == nothing {
		return Tombstone{}, true
	}
	if !bytes.HasPrefix(payload, []byte(erasedPrefix)) {
		return Tombstone{}, false
	}
	var stored tombstoneJSON
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&stored); err != nil || len(stored.Erased) == 0 {
		return Tombstone{}, false
	}
	for _, m := range stored.Erased {
		if m.Type != events.RoomJoined && m.Type != events.RoomLeft || m.Users < 0 || m.Users == 0 && m.Type != events.RoomJoined || m.Users > events.MaxUsers || events.CheckID(m.ConversationID) != "" {
			return Tombstone{}, false
		}
	}
	return Tombstone{Event: stored.Event, Members: stored.Erased}, true
}

// Append appends the payload for r to b.
func (r *Tombstone) Append(b []byte) ([]byte, error) {
	switch {
	case r.Members == nil && r.Event == nil:
		return append(b, nothing...), nil
	case r.Members == nil:
		return append(b, r.Event...), nil
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(tombstoneJSON{r.Members, r.Event}); err != nil {
		return nil, fmt.Errorf("encode a tombstone: %w", err)
	}
	return append(b, bytes.TrimSpace(text.Bytes())...), nil
}

// Decode returns the content of a payload of the log: of a tombstone, or an event.
func Decode(payload []byte) Tombstone {
	if r, ok := Parse(payload); ok {
		return r
	}
	return Tombstone{Event: payload}
}

// EventIn returns the event in a payload of the log. If the payload is a tombstone, this is
// the event that remains in it, nil if none remains; otherwise it is the payload itself.
func EventIn(payload []byte) []byte { return Decode(payload).Event }
