package events

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/badged/badged/internal/eventlog"
)

// routes are the rooms of a call, by their conversation; nil if it names none.
type routes map[string]*route

type route struct {
	// known are the partitions of the room in the directory, and joined those that
	// joins of this call add.
	known, joined eventlog.Set
	// now are the partitions that the room has behind the events encoded so far.
	now eventlog.Set
	// lastSeq is the last message of the room: as far as folded, which is read only if
	// joined is not empty, and as far as encoded.
	lastSeq int64
	// elsewhere is set if other databases have members, which is read with lastSeq.
	elsewhere bool
}

// OfRooms reports whether only rooms have events of the type.
func (t Type) OfRooms() bool { return strings.HasPrefix(string(t), "room.") }

// ToRoom reports whether events of the type name no users: they reach all members of a
// room.
func (t Type) ToRoom() bool { return t == RoomPosted || t == RoomRecalled || t == RoomReset }

// ReachesRoom reports whether e is about a room as a whole: it changes who is a member, or
// it reaches users that it does not name, who are the members.
func (e *Event) ReachesRoom() bool { return e.Type.OfRooms() || len(e.Data.UserIDs) == 0 }

// roomsOf returns the rooms that evs name.
func roomsOf(evs []Event) (rooms []string) {
	for i := range evs {
		if evs[i].Type.OfRooms() {
			rooms = append(rooms, evs[i].Data.ConversationID)
		}
	}
	return rooms
}

// routesOf returns the routes of the rooms that evs name, and the timeline of Postgres on
// which they hold.
func routesOf(ctx context.Context, l *eventlog.Layout, d eventlog.Directory, evs []Event) (all routes, timeline int64, err error) {
	all = routes{}
	for i := range evs {
		if evs[i].Type.OfRooms() && evs[i].Type != RoomLeft {
			all[evs[i].Data.ConversationID] = &route{}
		}
	}
	if len(all) == 0 {
		return nil, 0, nil
	}
	known, timeline, err := d.PartitionsOf(ctx, slices.Sorted(maps.Keys(all)))
	if err != nil {
		return nil, 0, err
	}
	living := l.Set()
	for room, partitions := range known {
		others := partitions
		if others.RemoveAll(&living); others.Len() > 0 {
			return nil, 0, fmt.Errorf("%w: the directory of rooms has others", ErrNotHeld)
		}
		all[room].known, all[room].now = partitions, partitions
	}
	var grow []string
	for i := range evs {
		if evs[i].Type != RoomJoined {
			continue
		}
		room := evs[i].Data.ConversationID
		r := all[room]
		if r.known.Len() == l.Len() {
			continue
		}
		before := r.joined
		for _, user := range evs[i].Data.UserIDs {
			if p := l.PartitionOf(user); !r.known.Has(p) {
				r.joined.Add(p)
			}
		}
		if before.Len() == 0 && r.joined.Len() > 0 {
			grow = append(grow, room)
		}
	}
	if len(grow) == 0 {
		return all, timeline, nil
	}
	last, err := d.LastSeqs(ctx, grow)
	if err != nil {
		return nil, 0, err
	}
	for _, room := range grow {
		r := all[room]
		r.lastSeq, r.elsewhere = last[room]
	}
	return all, timeline, nil
}

// lacks returns the partitions of users to which the room has not come yet.
func (r *route) lacks(users [][]string) (partitions eventlog.Set) {
	for p := range users {
		if len(users[p]) > 0 && !r.now.Has(p) {
			partitions.Add(p)
		}
	}
	return partitions
}

// changes returns what a transaction with these routes must check and write, nil for
// nothing.
func (all routes) changes(l *eventlog.Layout, timeline int64, expected *eventlog.Expected) *eventlog.Changes {
	if len(all) == 0 {
		return nil
	}
	c := eventlog.NewChanges(timeline, expected)
	for _, room := range slices.Sorted(maps.Keys(all)) {
		c.Add(room, &all[room].known, &all[room].joined, l)
	}
	return c
}
