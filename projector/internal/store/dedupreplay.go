package store

import (
	"slices"

	"github.com/google/uuid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/internal/keys"
)

// DedupReplay decides on duplicates as a [keys.Window] does, when a partition's
// log is replayed. It holds the keys of the probed generations
// with the users who have had them: replay.keyWeight bytes each, plus
// UserBytes for each user.
type DedupReplay struct {
	// Present is the number of the present generation, 0 for none.
	Present int
	// ahead are the generations that begin after the last position asked
	// about.
	ahead []Generation
	// Keys are by generation, the present one first.
	Keys [keys.ProbedGenerations]map[uuid.UUID]UserSet
	// Wants, if not nil, reports whether a key is of interest.
	Wants func(uuid.UUID) bool
}

// NewDedupReplay returns a DedupReplay without keys. The generations are those
// of LoadGenerations; with none, a single one never ends.
func NewDedupReplay(generations []Generation) *DedupReplay {
	return &DedupReplay{ahead: generations, Keys: [keys.ProbedGenerations]map[uuid.UUID]UserSet{{}, {}, {}}}
}

// First leaves an event, whose record is at a position, only the users who
// have not had it, and reports whether there are any. They have had it from
// then on. Positions must not descend from one call to the next. Callers may
// skip events of no interest, but for each user all that share a key or none.
func (d *DedupReplay) First(it *Item, at events.Position) bool {
	if !d.Fresh(it, at) {
		return false
	}
	d.Remember(it)
	return true
}

// Fresh is First without remembering the users.
func (d *DedupReplay) Fresh(it *Item, at events.Position) bool { return it.Without(d.Had(it.Key, at)) }

// Remember makes the users of an event, for which Fresh was true, have had it. Refused
// users are not among them.
func (d *DedupReplay) Remember(it *Item) {
	if len(it.Users) > 0 { // else it is a message to a room
		d.Keys[0][it.Key] += it.Users
	}
}

// Had returns the users who have had the event of a key before a position.
func (d *DedupReplay) Had(key uuid.UUID, at events.Position) (users UserSet) {
	for len(d.ahead) > 0 && d.ahead[0].After.Before(at) {
		d.next()
	}
	for _, keys := range d.Keys {
		users += keys[key]
	}
	return users
}

// Begin makes all generations begin that are ahead.
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

// Restore adds users under a key of a generation that has begun, if that
// generation is still probed.
func (d *DedupReplay) Restore(key uuid.UUID, users UserSet, generation int) {
	if age := d.Present - generation; age < keys.ProbedGenerations && (d.Wants == nil || d.Wants(key)) {
		d.Keys[age][key] += users
	}
}

// Extend adds generations that have begun since d was made.
func (d *DedupReplay) Extend(generations []Generation) {
	d.ahead = append(slices.Clip(d.ahead), generations...)
}
