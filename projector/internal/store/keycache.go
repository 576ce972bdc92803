package store

import (
	"encoding/binary"

	"github.com/google/uuid"
)

// KeyCache remembers recent keys, to tell events that are most likely new from
// suspects, which may have come before. It only guesses; the tables decide. It
// keeps half of each key, does not know keys from before the projector started
// or from long ago, and may know keys that were never folded.
//
// It has two halves, as Cache has.
type KeyCache struct {
	young, old map[uint64]struct{}
	limit      int // keys of a half; a batch may exceed it
}

const (
	// KeyCacheShare divides the memory: the key cache gets one part of so
	// many, the user cache the rest.
	KeyCacheShare = 8
	// keyCacheEntryBytes is roughly what a key takes in a map.
	keyCacheEntryBytes = 20
)

// NewKeyCache returns an empty cache of roughly so many bytes.
func NewKeyCache(bytes int) *KeyCache {
	return &KeyCache{young: map[uint64]struct{}{}, limit: max(1, bytes/2/keyCacheEntryBytes)}
}

// Turn makes room. Call it between batches only: if a batch forgot a key, it
// would take the second occurrence of an event for new.
func (r *KeyCache) Turn() {
	if len(r.young) >= r.limit {
		r.old, r.young = r.young, make(map[uint64]struct{}, len(r.young))
	}
}

// Note remembers a key and reports whether it may have come before.
func (r *KeyCache) Note(key uuid.UUID) bool {
	half := binary.BigEndian.Uint64(key[8:])
	if _, ok := r.young[half]; ok {
		return true
	}
	_, known := r.old[half]
	r.young[half] = struct{}{}
	return known
}

// Backoff is how many batches treat every event as a suspect. A batch that
// wrongly took an event for new is folded again, and the cached rows are lost.
// While old events are repeated often, suspecting all is cheaper.
type Backoff struct {
	left int // batches
	span int // of the last backoff, less the batches that went well since
}

// The least and the most batches of a backoff.
const (
	shortBackoff = 4
	longBackoff  = 1024
)

// Next counts a batch and reports whether it must suspect every event.
func (b *Backoff) Next() bool {
	if b.left > 0 {
		b.left--
		return true
	}
	b.span = max(0, b.span-1)
	return false
}

// Failed starts a backoff, after a batch took a repeated event for new.
func (b *Backoff) Failed() {
	b.span = min(max(shortBackoff, 2*b.span), longBackoff)
	b.left = b.span
}
