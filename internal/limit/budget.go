package limit

import (
	"container/list"
	"sync"
	"time"
)

// Budget bounds how much is in use at once, such as memory: in all, and for each holder. It
// is safe for concurrent use.
type Budget[K comparable] struct {
	most, share int64

	mu   sync.Mutex
	used int64
	of   map[K]int64
	// waiting has a *request for each caller that waits, in the order in which they came.
	waiting list.List
}

// request is what a caller waits for. granted is closed once it has that.
type request[K comparable] struct {
	key     K
	n       int64
	granted chan struct{}
}

// NewBudget returns a budget of most, of which one holder may use share.
func NewBudget[K comparable](most, share int64) *Budget[K] {
	return &Budget[K]{most: most, share: min(share, most), of: map[K]int64{}}
}

// Share is the most that one holder may use.
func (b *Budget[K]) Share() int64 { return b.share }

// Used is how much is in use.
func (b *Budget[K]) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Shortage says what a caller of [Budget.Take] lacks.
type Shortage uint8

// What there is too little of.
const (
	Enough Shortage = iota
	OfAll
	OfHolder
)

// Take takes n for a holder, and waits for so long if there is too little. If it takes
// anything, the caller must give it back.
func (b *Budget[K]) Take(key K, n int64, wait time.Duration) Shortage {
	b.mu.Lock()
	lacks := b.lacks(key, n)
	if lacks == Enough && b.waiting.Len() > 0 && wait > 0 {
		lacks = OfAll // behind those that came before
	}
	if lacks == Enough {
		b.take(key, n)
	}
	if lacks == Enough || wait <= 0 {
		b.mu.Unlock()
		return lacks
	}
	r := &request[K]{key, n, make(chan struct{})}
	place := b.waiting.PushBack(r)
	b.grant()
	b.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-r.granted:
		return Enough
	case <-timer.C:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-r.granted: // just now
		return Enough
	default:
	}
	b.waiting.Remove(place)
	lacks = max(b.lacks(key, n), OfAll)
	b.grant() // it may have been in the way
	return lacks
}

// Give gives back n.
func (b *Budget[K]) Give(key K, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	if b.of[key] -= n; b.of[key] == 0 {
		delete(b.of, key)
	}
	b.grant()
}

func (b *Budget[K]) lacks(key K, n int64) Shortage {
	switch {
	case b.of[key]+n > b.share:
		return OfHolder
	case b.used+n > b.most:
		return OfAll
	}
	return Enough
}

func (b *Budget[K]) take(key K, n int64) {
	b.used += n
	b.of[key] += n
}

// grant gives those that wait what they wait for, in their order. Those whose holder uses
// its share hold up no other. The caller holds the mutex.
func (b *Budget[K]) grant() {
	for place := b.waiting.Front(); place != nil; {
		next := place.Next()
		r, _ := place.Value.(*request[K])
		switch b.lacks(r.key, r.n) {
		case OfAll:
			return
		case Enough:
			b.take(r.key, r.n)
			b.waiting.Remove(place)
			close(r.granted)
		case OfHolder:
		}
		place = next
	}
}
