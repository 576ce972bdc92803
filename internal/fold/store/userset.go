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

// UserSet is the users of an event, in order: the concatenated hashes of the user ids, eight bytes
// each. If the event is published again with a longer list of users, the hashes show which users
// have not had the event yet.
type UserSet string

// UserBytes is the size of a user in a UserSet, in bytes. Two users of one event may have the
// same bytes: with 10,000 users, this happens in one of 10^11 events.
const UserBytes = 8

// usersOf returns the users of e, in the order of its list. It fails if a user belongs to
// another partition: folding the event here would write rows that another owner writes.
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

// user returns the user at index i.
func (s UserSet) user(i int) UserSet { return s[UserBytes*i : UserBytes*(i+1)] }

// RemoveUsers removes the given users from the item. It reports whether anything is left to fold:
// users, a message to a room, or joins and leaves of erased members. It does not change the
// event's list of users, which other items may share.
func (item *Item) RemoveUsers(users UserSet) bool {
	if item.ToRoom() {
		return true
	}
	switch users {
	case "":
		return len(item.Users) > 0 || item.Erased != nil
	case item.Users: // most repetitions have the same users
		item.Users, item.Event.Data.UserIDs = "", nil
		return item.Erased != nil
	}
	known := make(map[UserSet]struct{}, len(users)/UserBytes)
	for i := range len(users) / UserBytes {
		known[users.user(i)] = struct{}{}
	}
	item.leave(func(i int) bool {
		_, ok := known[item.Users.user(i)]
		return !ok
	})
	return len(item.Users) > 0 || item.Erased != nil
}

// Refuse removes from the item the users that [badge.State.Refused] returns, and returns them
// in ascending order; nil if there are none.
func (item *Item) Refuse(s *badge.State) []string {
	members := s.Refused(&item.Event)
	if members == nil {
		return nil
	}
	slices.Sort(members)
	item.Drop(members)
	return members
}

// Drop removes users from the item. users must be sorted.
func (item *Item) Drop(users []string) {
	item.leave(func(i int) bool {
		_, gone := slices.BinarySearch(users, item.Event.Data.UserIDs[i])
		return !gone
	})
}

// leave keeps the users of the item for whose index the function `keep` returns true, and removes
// all other users. It makes a new list of users, since other items may share the old one.
func (item *Item) leave(keep func(i int) bool) {
	var left []string
	var users strings.Builder
	for i, id := range item.Event.Data.UserIDs {
		if keep(i) {
			left = append(left, id)
			users.WriteString(string(item.Users.user(i)))
		}
	}
	item.Users, item.Event.Data.UserIDs = UserSet(users.String()), left
}

// entry returns the entry to store for the event's key and its user at index i.
func (item *Item) entry(i int) keys.Entry {
	return keys.EntryOf(item.Key, binary.BigEndian.Uint64([]byte(item.Users.user(i))))
}

// EntryOf returns the entry to store for an event key and a user.
func EntryOf(key uuid.UUID, userID string) keys.Entry {
	return keys.EntryOf(key, binary.BigEndian.Uint64([]byte(SetOf(userID))))
}

// SetOf returns the set with one user.
func SetOf(userID string) UserSet {
	hash := eventlog.HashUser(userID)
	return UserSet(hash[UserBytes : 2*UserBytes])
}

// Minus returns the set without user, and reports whether the set contained the user.
func (s UserSet) Minus(user UserSet) (rest UserSet, had bool) {
	var b strings.Builder
	for i := range len(s) / UserBytes {
		if s.user(i) == user {
			had = true
		} else {
			b.WriteString(string(s.user(i)))
		}
	}
	return UserSet(b.String()), had
}
