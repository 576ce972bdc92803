package store

import (
	"slices"

	"github.com/google/uuid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/fold/keys"
)

// DedupReplay detects repeated events as a [keys.Window] does, while a partition's log is
// replayed. It has the keys of the probed generations with the users who have had them. A key
// uses replay.keyWeight bytes, plus UserBytes for each user.
type DedupReplay struct {
	// Present is the number of the present generation, 0 before the first.
	Present int
	// ahead has the generations that begin after the last position passed to a method.
	ahead []Generation
	// Keys has the keys of each probed generation, the present generation first.
	Keys [keys.ProbedGenerations]map[uuid.UUID]UserSet
	// Wants reports whether Restore adds a key. If it is nil, Restore adds all keys.
	Wants func(uuid.UUID) bool
}

// NewDedupReplay returns a DedupReplay without keys. generations is the result of
// LoadGenerations. If it is empty, all keys belong to one generation, and none is forgotten.
func NewDedupReplay(generations []Generation) *DedupReplay {
	return &DedupReplay{ahead: generations, Keys: [keys.ProbedGenerations]map[uuid.UUID]UserSet{{}, {}, {}}}
}

// First removes from an event, whose record is at a position, the users who have had the
// event, and records the remaining users as users who have had it. It reports whether any
// users remain. Positions must not descend from one call to the next. A caller may skip
// events, but for each user must skip either all events with the same key or none of them.
func (d *DedupReplay) First(it *Item, at events.Position) bool {
	if !d.Fresh(it, at) {
		return false
	}
	d.Remember(it)
	return true
}

// Fresh does what First does, without recording the remaining users.
func (d *DedupReplay) Fresh(it *Item, at events.Position) bool { return it.Without(d.Had(it.Key, at)) }

// Remember records that the users of an event have had it. Call it after Fresh has returned
// true and after the refused users were removed from the event.
func (d *DedupReplay) Remember(it *Item) {
	if len(it.Users) > 0 { // else it is a message to a room
		d.Keys[0][it.Key] += it.Users
	}
}

// Had returns the users who had the event of a key before a position.
func (d *DedupReplay) Had(key uuid.UUID, at events.Position) (users UserSet) {
	for len(d.ahead) > 0 && d.ahead[0].After.Before(at) {
		d.next()
	}
	for _, keys := range d.Keys {
		users += keys[key]
	}
	return users
}

// Begin begins all remaining generations.
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

// Restore adds users under a key of a generation, if that generation is still probed. The
// generation must have begun.
func (d *DedupReplay) Restore(key uuid.UUID, users UserSet, generation int) {
	if age := d.Present - generation; age < keys.ProbedGenerations && (d.Wants == nil || d.Wants(key)) {
		d.Keys[age][key] += users
	}
}

// Extend adds generations that have begun since d was made.
func (d *DedupReplay) Extend(generations []Generation) {
	d.ahead = append(slices.Clip(d.ahead), generations...)
}
