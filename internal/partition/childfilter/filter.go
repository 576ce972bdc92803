// Package childfilter implements the child filter of a split. From a row in the log of the split
// partition (the parent), it makes the row for one of the two new partitions (the child), with
// only the child's users.
//
// It does not know tables or files: events in, events out. ADR 93 has the reasons.
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
	// Partitions is the initial number of partitions of the log.
	Parent, Child, Partitions int
	// First is set for the first child, which also gets the events that name no users.
	First bool
}

// nothing is stored instead of an event that names no user of the child.
const nothing = "null"

// Row returns the child's row for a row of the parent. n is the number of events in the child's
// row: 0 if the child gets no event, otherwise the same number, with the same indexes, as in the
// parent's row. The first child gets a row that cannot be unpacked unchanged.
func (f Filter) Row(payload []byte) (row []byte, n int, err error) {
	all, unpackErr := eventbatch.Unpack(payload)
	if unpackErr != nil || len(payload) == 0 { // a dead letter
		if f.First {
			return payload, 1, nil
		}
		return nil, 0, nil
	}
	texts, empty, same, size := make([]string, len(all)), true, true, 2
	for i, event := range all {
		part, err := f.Event(event)
		if err != nil {
			return nil, 0, err
		}
		texts[i] = string(part)
		empty, same = empty && texts[i] == nothing, same && bytes.Equal(part, event)
		size += len(part) + 1
	}
	switch {
	case empty:
		return nil, 0, nil
	case same:
		return payload, len(all), nil
	case len(all) == 1 && !eventbatch.IsBatch(payload):
		return []byte(texts[0]), 1, nil
	case size > eventbatch.MaxBytes:
		return nil, 0, fmt.Errorf("a child's row with %d events would have %d bytes; the limit is %d", len(all), size, eventbatch.MaxBytes)
	}
	return eventbatch.Pack(texts), len(all), nil
}

// Archived filters the payload of an archived record as Event does. An empty payload comes from a
// row that the parent could not unpack, which the first child gets.
func (f Filter) Archived(payload []byte) ([]byte, error) {
	if len(payload) == 0 && f.First { // a dead letter
		return payload, nil
	}
	return f.Event(payload)
}

// Event returns the child's part of an event or a tombstone, `null` if the child gets nothing.
func (f Filter) Event(payload []byte) ([]byte, error) {
	was, isTombstone := tombstones.Parse(payload)
	if !isTombstone {
		was.Event = payload
	}
	left := tombstones.Remains{Members: f.members(was.Members)}
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
	users, others := f.among(d.UserIDs)
	mentioned, unmentioned := f.among(d.MentionedUserIDs)
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

// members returns the child's part of erased members. The first child gets all of them, since
// their user ids are not stored. The other child only gets the rooms of joins, with 0 users.
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

// ofParent reports whether all users belong to the parent. If not, the event is a dead letter of
// the parent.
func (f Filter) ofParent(users []string) bool {
	for _, u := range users {
		if !eventlog.Belongs(u, f.Parent, f.Partitions) {
			return false
		}
	}
	return true
}

// among returns the users of the child, and the number of other users.
func (f Filter) among(users []string) (own []string, others int) {
	for _, u := range users {
		if eventlog.Belongs(u, f.Child, f.Partitions) {
			own = append(own, u)
		}
	}
	return own, len(users) - len(own)
}

// Users returns the users that belong to the child.
func (f Filter) Users(users []string) []string {
	own, _ := f.among(users)
	return own
}
