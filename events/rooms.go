package events

import "strings"

// OfRooms reports whether only rooms have events of the type.
func (t Type) OfRooms() bool { return strings.HasPrefix(string(t), "room.") }

// ToRoom reports whether events of the type name no users: they reach all members of a
// room.
func (t Type) ToRoom() bool {
	return t == RoomPosted || t == RoomChanged || t == RoomRecalled || t == RoomReset
}

// ReachesRoom reports whether e is about a room as a whole: it changes who is a member, or
// it reaches users that it does not name, who are the members.
func (e *Event) ReachesRoom() bool { return e.Type.OfRooms() || len(e.Data.UserIDs) == 0 }
