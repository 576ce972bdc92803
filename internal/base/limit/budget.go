package limit

import (
	"container/list"
	"sync"
	"time"
)

// Budget limits how much of a resource, such as memory, is in use at once: by all holders
// together, and by each holder. It is safe for concurrent use.
type Budget[K comparable] struct {
	most, share int64

	mu   sync.Mutex
	used int64
	of   map[K]int64
	// waiting has a *request for each waiting caller, in the order of their calls.
	waiting list.List
}

// request is the amount that a caller waits for. granted is closed once the caller has it.
type request[K comparable] struct {
	key     K
	n       int64
	granted chan struct{}
}

// NewBudget returns a budget of most units, of which one holder may use share units.
func NewBudget[K comparable](most, share int64) *Budget[K] {
	return &Budget[K]{most: most, share: min(share, most), of: map[K]int64{}}
}

// Share returns how many units one holder may use.
func (b *Budget[K]) Share() int64 { return b.share }

// Used returns how many units are in use.
func (b *Budget[K]) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Shortage is the reason why [Budget.Take] did not succeed, or Enough.
type Shortage uint8

// The reasons: all holders together use too much, or this holder does.
const (
	Enough Shortage = iota
	OfAll
	OfHolder
)

// Take acquires n units for a holder and returns Enough. The caller must then return them with
// Give. If too few units are free, Take waits for them, at most for wait, and then returns the
// reason.
func (b *Budget[K]) Take(key K, n int64, wait time.Duration) Shortage {
	b.mu.Lock()
	lacks := b.lacks(key, n)
	if lacks == Enough && b.waiting.Len() > 0 && wait > 0 {
		lacks = OfAll // earlier callers wait already, so queue behind them
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
	b.grant() // the removed request may have blocked smaller requests behind it
	return lacks
}

// Give returns n units of a holder.
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

// grant grants waiting requests in their order, and stops at the first request for which too
// little of the whole budget is free. It skips requests whose holder has used its share, so
// that they do not block other holders. The caller holds the mutex.
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
