package store

import (
	"errors"
	"slices"

	"github.com/google/uuid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/internal/log/tombstones"
)

// Sizes of the first pages read from the log, before the speed of folding has been measured.
const (
	BatchBytes = 8 << 20 // of payload
	FirstBatch = 500     // events
)

// Item is a decoded event that can be folded.
type Item struct {
	Event events.Event
	Key   uuid.UUID
	// Users has the hashes of the event's users, in the order of its list.
	Users UserSet
	// Erased has the joins and leaves of erased members of rooms that the event contained; nil
	// if there are none. If all users of the event were erased, Event is empty and has no
	// type.
	Erased []tombstones.Members
}

// ToRoom reports whether the event reaches all members of a room. Such an event has no list of
// users, and folding it again changes nothing.
func (item *Item) ToRoom() bool { return item.Event.Type.ToRoom() }

// Named returns the users whose conversations or memberships the event may change. For a
// message to a room, these are its sender and the users that it mentions by name. For any
// other event, these are its users.
func (item *Item) Named() []string {
	d := &item.Event.Data
	if item.Event.Type != events.RoomPosted && item.Event.Type != events.RoomChanged {
		return d.UserIDs
	}
	if d.SenderID == "" {
		return d.MentionedUserIDs
	}
	return append(slices.Clone(d.MentionedUserIDs), d.SenderID)
}

// NewItem decodes a record of a partition. The error is the reason why the record cannot be
// folded.
func NewItem(r *events.Record, partition, partitions int) (Item, error) {
	if r.Damage != nil {
		return Item{}, r.Damage
	}
	if left, ok := tombstones.Parse(r.Payload); ok {
		if !r.Own && slices.ContainsFunc(left.Members, func(m tombstones.Members) bool { return m.Users > 0 }) {
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

// remaining returns the item for a record that is a tombstone: users were erased from its
// event. left is the parsed tombstone.
func remaining(r *events.Record, left *tombstones.Tombstone, partition, partitions int) (item Item, err error) {
	if left.Event != nil {
		rest := *r
		rest.Payload = left.Event
		if item, err = NewItem(&rest, partition, partitions); err != nil {
			return Item{}, err
		}
	}
	item.Erased = left.Members
	return item, nil
}

// OfRooms reports whether only partitions with rooms can have this event.
func (item *Item) OfRooms() bool { return item.Event.Type.OfRooms() || item.Erased != nil }

// ErrForged means that another program than badged has written a record that has the form of a
// tombstone.
var ErrForged = errors.New("the event has the form of a tombstone, which only badged itself writes")

// ItemOf returns the item for a decoded event. It fails if a user does not belong to the
// partition.
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
