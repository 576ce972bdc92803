package store

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/fold/badge"
	"github.com/badged/badged/internal/fold/keys"
	"github.com/badged/badged/internal/log/eventlog"
)

// UserSet is a set of users of an event: eight bytes of the hash of each user id,
// concatenated. If an event is published again with a longer list, the set separates the users
// who have had the event from the new users.
type UserSet string

// UserBytes is the size of a user in a UserSet. Two users of the same event have the same
// eight bytes in one of 10^11 events with 10,000 users.
const UserBytes = 8

// usersOf returns the users of e in order. It fails if a user belongs to another partition:
// folding the event here would give that user's rows a second writer.
func usersOf(e *events.Event, partition, partitions int) (UserSet, error) {
	var b strings.Builder
	b.Grow(UserBytes * len(e.Data.UserIDs))
	for _, u := range e.Data.UserIDs {
		hash := eventlog.HashUser(u)
		if !hash.In(partition, partitions) {
			return "", fmt.Errorf("user %q does not belong to partition %d", u, partition)
		}
		b.Write(hash[UserBytes : 2*UserBytes])
	}
	return UserSet(b.String()), nil
}

// at returns the user at index i.
func (s UserSet) at(i int) UserSet { return s[UserBytes*i : UserBytes*(i+1)] }

// Without removes the users in had from the item and reports whether anything remains. A
// message to a room, which has no users, always remains, and so do the joins and leaves of
// erased members. Without does not change the event's list, which other items may share.
func (it *Item) Without(had UserSet) bool {
	if it.ToRoom() {
		return true
	}
	switch had {
	case "":
		return len(it.Users) > 0 || it.Erased != nil
	case it.Users: // most repetitions have the same users
		it.Users, it.Event.Data.UserIDs = "", nil
		return it.Erased != nil
	}
	known := make(map[UserSet]struct{}, len(had)/UserBytes)
	for i := range len(had) / UserBytes {
		known[had.at(i)] = struct{}{}
	}
	it.leave(func(i int) bool {
		_, ok := known[it.Users.at(i)]
		return !ok
	})
	return len(it.Users) > 0 || it.Erased != nil
}

// Refuse removes from the item the users that [badge.State.Refused] returns, and returns them
// in order.
func (it *Item) Refuse(s *badge.State) []string {
	members := s.Refused(&it.Event)
	if members == nil {
		return nil
	}
	slices.Sort(members)
	it.Drop(members)
	return members
}

// Drop removes users, which must be sorted, from the item.
func (it *Item) Drop(users []string) {
	it.leave(func(i int) bool {
		_, gone := slices.BinarySearch(users, it.Event.Data.UserIDs[i])
		return !gone
	})
}

// leave removes the users of the item for whose index keep returns false. It does not change
// the event's list.
func (it *Item) leave(keep func(i int) bool) {
	var left []string
	var users strings.Builder
	for i, id := range it.Event.Data.UserIDs {
		if keep(i) {
			left = append(left, id)
			users.WriteString(string(it.Users.at(i)))
		}
	}
	it.Users, it.Event.Data.UserIDs = UserSet(users.String()), left
}

// entry returns the entry of the event and its user at index i.
func (it *Item) entry(i int) keys.Entry {
	return keys.EntryOf(it.Key, binary.BigEndian.Uint64([]byte(it.Users.at(i))))
}

// EntryOf returns the entry of an event key and a user.
func EntryOf(key uuid.UUID, userID string) keys.Entry {
	return keys.EntryOf(key, binary.BigEndian.Uint64([]byte(SetOf(userID))))
}

// SetOf returns the set of one user.
func SetOf(userID string) UserSet {
	hash := eventlog.HashUser(userID)
	return UserSet(hash[UserBytes : 2*UserBytes])
}

// Minus returns the set without user, and reports whether the set had the user.
func (s UserSet) Minus(user UserSet) (rest UserSet, had bool) {
	var b strings.Builder
	for i := range len(s) / UserBytes {
		if s.at(i) == user {
			had = true
		} else {
			b.WriteString(string(s.at(i)))
		}
	}
	return UserSet(b.String()), had
}
