package projector

import (
	"encoding/binary"

	"github.com/google/uuid"
)

// recentKeys knows the keys that came last, so as to tell those that are most
// likely new from those that may have come before. It is only a guess, and what
// is decided is decided by the tables: half of each key is kept, the keys from
// before the projector was started are not known, nor are those that came long
// ago; and some that it knows were never folded.
//
// It has two halves, as the cache has.
type recentKeys struct {
	young, old map[uint64]struct{}
	limit      int // keys of a half, and those of a batch more
}

const (
	// recentShare is how many times more memory goes to the cache.
	recentShare = 8
	// recentKeyBytes is about what a key takes in a map.
	recentKeyBytes = 20
)

// newRecentKeys returns a memory of so many bytes, roughly.
func newRecentKeys(bytes int) *recentKeys {
	return &recentKeys{young: map[uint64]struct{}{}, limit: max(1, bytes/2/recentKeyBytes)}
}

// turn makes room. It is called between batches only: within one, nothing may be
// forgotten, or an event that comes in it twice would be taken for new the second
// time, and its place in the order be that.
func (r *recentKeys) turn() {
	if len(r.young) >= r.limit {
		r.old, r.young = r.young, make(map[uint64]struct{}, len(r.young))
	}
}

// note remembers a key, and reports whether it may have come before.
func (r *recentKeys) note(key uuid.UUID) bool {
	half := binary.BigEndian.Uint64(key[8:])
	if _, ok := r.young[half]; ok {
		return true
	}
	_, known := r.old[half]
	r.young[half] = struct{}{}
	return known
}

// caution is for how many batches every event is taken to be one that may have
// come before. A batch that was wrong to rely on what it knew is folded anew, and
// the rows that were remembered are lost; where old events keep coming again, it
// is better not to.
type caution struct {
	left int // batches
	span int // of the last caution, less the batches that went well since
}

// The least and the most batches of a caution.
const (
	shortCaution = 4
	longCaution  = 1024
)

// advised reports whether the next batch is to be careful.
func (c *caution) advised() bool {
	if c.left > 0 {
		c.left--
		return true
	}
	c.span = max(0, c.span-1)
	return false
}

// failed says that a batch was not careful and should have been.
func (c *caution) failed() {
	c.span = min(max(shortCaution, 2*c.span), longCaution)
	c.left = c.span
}
