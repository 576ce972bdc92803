// Package share is the child filter: it reduces rows of the log to the users of one of the
// two partitions into which a partition was split.
//
// It does not know tables or files: events in, events out. ADR 93 has the reasons.
package share

import (
	"bytes"
	"fmt"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/eventbatch"
	"github.com/badged/badged/internal/eventlog"
	"github.com/badged/badged/internal/remains"
)

// Of filters for one of the two partitions into which another was split.
type Of struct {
	// Parent was split, and Child is one of the two; the log began with Partitions partitions.
	Parent, Child, Partitions int
	// First is set for the first of the two. It also gets what names no users.
	First bool
}

// nothing replaces an event that names no user of the child.
const nothing = "null"

// Row returns a row with the events of the child, in their places, and how many there are: 0
// if the child gets none of them. A row that cannot be unpacked goes to the first child as it
// is.
func (o Of) Row(payload []byte) (row []byte, n int, err error) {
	all, unpackErr := eventbatch.Unpack(payload)
	if unpackErr != nil || len(payload) == 0 { // a dead letter
		if o.First {
			return payload, 1, nil
		}
		return nil, 0, nil
	}
	texts, empty, same, size := make([]string, len(all)), true, true, 2
	for i, event := range all {
		part, err := o.Event(event)
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
		return nil, 0, fmt.Errorf("the share of a row with %d events would have %d bytes; at most %d are read", len(all), size, eventbatch.MaxBytes)
	}
	return eventbatch.Pack(texts), len(all), nil
}

// Archived returns the share of what an archive has of an event: like Event, also of rows
// that the parent could not take apart.
func (o Of) Archived(payload []byte) ([]byte, error) {
	if len(payload) == 0 && o.First { // a dead letter
		return payload, nil
	}
	return o.Event(payload)
}

// Event returns the share of an event, or of what remains of one, `null` if it is empty.
func (o Of) Event(payload []byte) ([]byte, error) {
	was, isRemains := remains.Parse(payload)
	if !isRemains {
		was.Event = payload
	}
	left := remains.Remains{Members: o.members(was.Members)}
	if was.Event == nil {
		return left.Append(nil)
	}
	e, err := events.Decode(was.Event)
	if err != nil || !o.ofParent(e.Data.UserIDs) {
		// It became a dead letter.
		if o.First {
			left.Event = was.Event
		}
		return left.Append(nil)
	}
	d := &e.Data
	users, others := o.among(d.UserIDs)
	mentioned, unmentioned := o.among(d.MentionedUserIDs)
	toRoom := e.Type.ToRoom()
	switch {
	case others == 0 && unmentioned == 0 && (len(users) > 0 || toRoom):
		left.Event = was.Event
	case len(users) > 0 || toRoom:
		d.UserIDs, d.MentionedUserIDs = users, mentioned
		if left.Event, err = e.MarshalJSON(); err != nil {
			return nil, fmt.Errorf("encode the share of an event: %w", err)
		}
	case e.Type == events.RoomJoined && left.Members == nil:
		left.Members = []remains.Members{{Type: e.Type, ConversationID: d.ConversationID}} // the room was there
	}
	return left.Append(nil)
}

// members returns the share of erased members: whether they would be in one child or the
// other is not known any more. The first has them.
func (o Of) members(all []remains.Members) (share []remains.Members) {
	if o.First {
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

// ofParent reports whether all users were in the parent, which otherwise refused the event.
func (o Of) ofParent(users []string) bool {
	for _, u := range users {
		if !eventlog.Belongs(u, o.Parent, o.Partitions) {
			return false
		}
	}
	return true
}

// among returns the users of the child, and how many others there are.
func (o Of) among(users []string) (own []string, others int) {
	for _, u := range users {
		if eventlog.Belongs(u, o.Child, o.Partitions) {
			own = append(own, u)
		}
	}
	return own, len(users) - len(own)
}

// Users returns those users who belong to the child.
func (o Of) Users(users []string) []string {
	own, _ := o.among(users)
	return own
}
