package store

import (
	"errors"
	"slices"

	"github.com/google/uuid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/eventlog"
	"github.com/badged/badged/internal/remains"
)

// How much of the log is read at once, until the fold's speed is known.
const (
	BatchBytes = 8 << 20 // of payload
	FirstBatch = 500     // events
)

// Item is an event that can be folded.
type Item struct {
	Event events.Event
	Key   uuid.UUID
	// Users are the users of the event, in its order.
	Users UserSet
	// Erased are former members of rooms, nil if the event has none. Without other
	// users there is no event; its type is empty then.
	Erased []remains.Members
}

// ToRoom reports whether the event reaches all members of a room. It has no users, and
// may be folded again.
func (it *Item) ToRoom() bool { return it.Event.Type.ToRoom() }

// Named returns the users of the event, or of a message to a room those that it
// names, whose memberships it may change.
func (it *Item) Named() []string {
	d := &it.Event.Data
	if it.Event.Type != events.RoomPosted && it.Event.Type != events.RoomChanged {
		return d.UserIDs
	}
	if d.SenderID == "" {
		return d.MentionedUserIDs
	}
	return append(slices.Clone(d.MentionedUserIDs), d.SenderID)
}

// NewItem decodes a record of a partition. The error is the reason why it
// cannot be folded.
func NewItem(r *events.Record, partition, partitions int) (Item, error) {
	if r.Damage != nil {
		return Item{}, r.Damage
	}
	if left, ok := remains.Parse(r.Payload); ok {
		if !r.Own && slices.ContainsFunc(left.Members, func(m remains.Members) bool { return m.Users > 0 }) {
			return Item{}, ErrForged
		}
		return remaining(r, &left, partition, partitions)
	}
	e, err := events.Decode(r.Payload)
	if err != nil {
		return Item{}, err
	}
	if !r.Own {
		if err := e.CheckReserved(); err != nil {
			return Item{}, err
		}
	}
	e.AppendedAt = r.AppendedAt
	return ItemOf(e, partition, partitions)
}

// remaining returns what is left of an event after users were erased.
func remaining(r *events.Record, left *remains.Remains, partition, partitions int) (it Item, err error) {
	if left.Event != nil {
		rest := *r
		rest.Payload = left.Event
		if it, err = NewItem(&rest, partition, partitions); err != nil {
			return Item{}, err
		}
	}
	it.Erased = left.Members
	return it, nil
}

// OfRooms reports whether the event is one of rooms only.
func (it *Item) OfRooms() bool { return it.Event.Type.OfRooms() || it.Erased != nil }

// ErrForged is the error of what looks like the rest of an event without erased users, if
// badged did not write it.
var ErrForged = errors.New("what remains of an event without erased users is written by badged itself only")

// ItemOf returns an event of a partition as an item.
func ItemOf(e events.Event, partition, partitions int) (Item, error) {
	users, err := usersOf(&e, partition, partitions)
	if err != nil {
		return Item{}, err
	}
	if (e.Type == events.RoomPosted || e.Type == events.RoomChanged) && e.Data.SenderID != "" && !eventlog.Belongs(e.Data.SenderID, partition, partitions) {
		e.Data.SenderID = "" // the sender's membership is in another partition
	}
	return Item{Event: e, Key: e.Key(), Users: users}, nil
}
