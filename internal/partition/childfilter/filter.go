// Package childfilter implements the child filter of a split, which creates the logs of the two
// new partitions (the children). From a row in the log of the split partition (the parent), it
// makes the row of one child, with only the child's users.
//
// It does not know tables or files: it reads and returns payloads. ADR 93 has the reasons.
package childfilter

import (
	"bytes"
	"fmt"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/log/eventbatch"
	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/internal/log/tombstones"
)

// Filter filters rows of a parent partition for one of its children.
type Filter struct {
	// Parent and Child are the numbers of the two partitions. Partitions is the initial number of
	// partitions of the log.
	Parent, Child, Partitions int
	// First is true for the first child. Only this child gets what cannot be divided by user: dead
	// letters, and the erased members in tombstones.
	First bool
}

// nothing is the payload that the child stores in place of an event that names none of its users.
// So the other events of the row keep their indexes.
const nothing = "null"

// Row returns the child's row for a row of the parent. n is the number of events in the child's
// row. If the row has no event for the child, n is 0; otherwise n and the indexes of the events are
// the same as in the parent's row. If the parent's row cannot be unpacked, it is a dead letter: the
// first child gets it unchanged with n = 1, and the second child gets nothing.
func (f Filter) Row(payload []byte) (row []byte, n int, err error) {
	all, unpackErr := eventbatch.Unpack(payload)
	if unpackErr != nil || len(payload) == 0 { // a dead letter
		if f.First {
			return payload, 1, nil
		}
		return nil, 0, nil
	}
	texts, empty, same := make([]string, len(all)), true, true
	for i, event := range all {
		part, err := f.Event(event)
		if err != nil {
			return nil, 0, err
		}
		texts[i] = string(part)
		empty, same = empty && texts[i] == nothing, same && bytes.Equal(part, event)
	}
	switch {
	case empty:
		return nil, 0, nil
	case same:
		return payload, len(all), nil
	case len(all) == 1 && !eventbatch.IsBatch(payload):
		return []byte(texts[0]), 1, nil
	}
	if row, err = eventbatch.Pack(texts); err != nil {
		return nil, 0, fmt.Errorf("the row of a child: %w", err)
	}
	return row, len(all), nil
}

// Archived filters the payload of an archived record as Event does. In addition, the first child
// gets an empty payload unchanged: it is a dead letter, from a row that the parent could not
// unpack.
func (f Filter) Archived(payload []byte) ([]byte, error) {
	if len(payload) == 0 && f.First { // a dead letter
		return payload, nil
	}
	return f.Event(payload)
}

// Event returns the child's part of an event or of a tombstone, or `null` if the child gets
// nothing.
func (f Filter) Event(payload []byte) ([]byte, error) {
	was := tombstones.Decode(payload)
	left := tombstones.Tombstone{Members: f.members(was.Members)}
	if was.Event == nil {
		return left.Append(nil)
	}
	e, err := events.Decode(was.Event)
	if err != nil || !f.ofParent(e.Data.UserIDs) {
		// The parent stored this event as a dead letter.
		if f.First {
			left.Event = was.Event
		}
		return left.Append(nil)
	}
	d := &e.Data
	users, others := f.divide(d.UserIDs)
	mentioned, unmentioned := f.divide(d.MentionedUserIDs)
	toRoom := e.Type.ToRoom()
	switch {
	case others == 0 && unmentioned == 0 && (len(users) > 0 || toRoom):
		left.Event = was.Event
	case len(users) > 0 || toRoom:
		d.UserIDs, d.MentionedUserIDs = users, mentioned
		if left.Event, err = e.MarshalJSON(); err != nil {
			return nil, fmt.Errorf("encode a child's event: %w", err)
		}
	case e.Type == events.RoomJoined && left.Members == nil:
		left.Members = []tombstones.Members{{Type: e.Type, ConversationID: d.ConversationID}} // the child must know that the room exists
	}
	return left.Append(nil)
}

// members returns the child's part of the erased members in a tombstone. Their user ids are not
// stored, so the first child gets all of them. The second child gets only the entries of joins,
// with 0 users, since it must know that these rooms exist.
func (f Filter) members(all []tombstones.Members) (share []tombstones.Members) {
	if f.First {
		return all
	}
	for _, m := range all {
		if m.Type == events.RoomJoined {
			m.Users = 0
			share = append(share, m)
		}
	}
	return share
}

// ofParent reports whether all users of an event belong to the parent. Otherwise the event is a
// dead letter of the parent.
func (f Filter) ofParent(users []string) bool {
	for _, u := range users {
		if !eventlog.Belongs(u, f.Parent, f.Partitions) {
			return false
		}
	}
	return true
}

// divide returns the users of the child, and the number of other users.
func (f Filter) divide(users []string) (own []string, others int) {
	for _, u := range users {
		if eventlog.Belongs(u, f.Child, f.Partitions) {
			own = append(own, u)
		}
	}
	return own, len(users) - len(own)
}

// Users returns the users that belong to the child.
func (f Filter) Users(users []string) []string {
	own, _ := f.divide(users)
	return own
}
