package projector

import (
	"slices"

	"github.com/google/uuid"

	"github.com/badged/badged/events"
)

// keyMemory decides on duplicates as the tables of keys do, in memory: for
// whoever folds a partition's log again. It holds the keys of the generations
// that are probed, 16 bytes and the cost of a map each.
type keyMemory struct {
	// present is the number of the present generation, 0 for none.
	present int
	// ahead are the generations that begin behind what it was asked last.
	ahead []generation
	// keys are by generation, the present one first.
	keys [probedGenerations]map[uuid.UUID]struct{}
	// wants, where not nil, is which keys are of interest.
	wants func(uuid.UUID) bool
}

// newKeyMemory returns a memory without keys. The generations are those of
// loadGenerations; none at all are one without end.
func newKeyMemory(generations []generation) *keyMemory {
	return &keyMemory{ahead: generations, keys: [probedGenerations]map[uuid.UUID]struct{}{{}, {}, {}}}
}

// duplicate reports whether the event with a key, whose record is at a
// position, changes nothing since its key is remembered; otherwise it is from
// then on. Positions must not descend from one call to the next; events that
// are of no interest may be left out, but all that share a key or none.
func (m *keyMemory) duplicate(key uuid.UUID, at events.Position) bool {
	for len(m.ahead) > 0 && m.ahead[0].after.Before(at) {
		copy(m.keys[1:], m.keys[:])
		m.keys[0] = map[uuid.UUID]struct{}{}
		m.present = m.ahead[0].number
		m.ahead = m.ahead[1:]
	}
	for _, keys := range m.keys {
		if _, ok := keys[key]; ok {
			return true
		}
	}
	m.keys[0][key] = struct{}{}
	return false
}

// restore remembers a key of a generation that has begun already, where that is
// still probed.
func (m *keyMemory) restore(key uuid.UUID, generation int) {
	if age := m.present - generation; age < probedGenerations && (m.wants == nil || m.wants(key)) {
		m.keys[age][key] = struct{}{}
	}
}

// extend adds generations that have begun since the memory was made.
func (m *keyMemory) extend(generations []generation) {
	m.ahead = append(slices.Clip(m.ahead), generations...)
}
