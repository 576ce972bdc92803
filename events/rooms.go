package events

import "strings"

// OfRooms reports whether only rooms have events of the type.
func (t Type) OfRooms() bool { return strings.HasPrefix(string(t), "room.") }

// ToRoom reports whether events of the type name no users: they reach all members of a
// room.
func (t Type) ToRoom() bool {
	return t == RoomPosted || t == RoomChanged || t == RoomRecalled || t == RoomReset
}

// OfConversations reports whether events of the type are about all conversations of their
// users that a category covers.
func (t Type) OfConversations() bool { return t.ofAll() || t == UserLeftAll || t == CategoryLevelSet }

// ofAll reports whether such an event without a category is about all conversations.
func (t Type) ofAll() bool { return t == UserReadAll || t == UserSeenAll }

// ReachesRoom reports whether e is about a room as a whole: it changes who is a member, or
// it reaches users that it does not name, who are the members.
func (e *Event) ReachesRoom() bool { return e.Type.OfRooms() || len(e.Data.UserIDs) == 0 }
