package store

import (
	"slices"

	"github.com/google/uuid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/fold/keys"
)

// DedupReplay finds repeated events while the log of a partition is replayed in memory; in the
// projector, a [keys.Window] finds them. It stores the event keys of the probed generations,
// each with the users who have had the event. A key uses replay.keyWeight bytes, and UserBytes
// for each user.
type DedupReplay struct {
	// Present is the number of the present generation, 0 before the first.
	Present int
	// ahead has, in order, the generations that have not begun at the last position that was passed
	// to First, Fresh or Earlier.
	ahead []Generation
	// Keys has the keys of each probed generation, the present generation first.
	Keys [keys.ProbedGenerations]map[uuid.UUID]UserSet
	// Wants decides which keys Restore adds; nil for all.
	Wants func(uuid.UUID) bool
}

// NewDedupReplay returns a DedupReplay without keys. generations is the result of
// LoadGenerations. If it is empty, all keys belong to one generation, and no key expires.
func NewDedupReplay(generations []Generation) *DedupReplay {
	return &DedupReplay{ahead: generations, Keys: [keys.ProbedGenerations]map[uuid.UUID]UserSet{{}, {}, {}}}
}

// First removes from an event the users who have had it before, and records that the remaining
// users have had it. It reports whether anything is left to fold, like [Item.RemoveUsers].
// `position` is the position of the event's record; a call must not have a lower position than the
// call before. A caller may skip events, but for each pair of key and user it must skip either all
// events or none.
func (d *DedupReplay) First(item *Item, position events.Position) bool {
	if !d.Fresh(item, position) {
		return false
	}
	d.Remember(item)
	return true
}

// Fresh is First, except that it does not record the remaining users.
func (d *DedupReplay) Fresh(item *Item, position events.Position) bool {
	return item.RemoveUsers(d.Earlier(item.Key, position))
}

// Remember records that the users of an event have had it. Call it after Fresh has returned true.
// If the event must not be folded for some of its users, first remove these users from it.
func (d *DedupReplay) Remember(item *Item) {
	if len(item.Users) > 0 { // else it is a message to a room
		d.Keys[0][item.Key] += item.Users
	}
}

// Earlier returns the users who had the event with this key before position.
func (d *DedupReplay) Earlier(key uuid.UUID, position events.Position) (users UserSet) {
	for len(d.ahead) > 0 && d.ahead[0].After.Before(position) {
		d.next()
	}
	for _, keys := range d.Keys {
		users += keys[key]
	}
	return users
}

// Begin makes the last known generation the present one.
func (d *DedupReplay) Begin() {
	for len(d.ahead) > 0 {
		d.next()
	}
}

// next makes the next generation the present one.
func (d *DedupReplay) next() {
	copy(d.Keys[1:], d.Keys[:])
	d.Keys[0] = map[uuid.UUID]UserSet{}
	d.Present = d.ahead[0].Number
	d.ahead = d.ahead[1:]
}

// Restore records that users have had the event with this key. generation is the generation that
// stores the key; it must have begun. Restore does nothing if the generation is no longer probed,
// or Wants rejects the key.
func (d *DedupReplay) Restore(key uuid.UUID, users UserSet, generation int) {
	if age := d.Present - generation; age < keys.ProbedGenerations && (d.Wants == nil || d.Wants(key)) {
		d.Keys[age][key] += users
	}
}

// Extend adds generations that begin after the generations added before.
func (d *DedupReplay) Extend(generations []Generation) {
	d.ahead = append(slices.Clip(d.ahead), generations...)
}
