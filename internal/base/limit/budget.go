package limit

import (
	"container/list"
	"sync"
	"time"
)

// Budget limits how much of a resource, such as memory, is in use at the same time: by all holders
// together, and by each holder. It is safe for concurrent use.
type Budget[K comparable] struct {
	limit, share int64

	mu    sync.Mutex
	used  int64
	byKey map[K]int64
	// waiting has a *request for each caller that waits, in the order of their calls.
	waiting list.List
}

// request is the amount for which a caller waits. granted is closed when the amount has been
// granted to the caller.
type request[K comparable] struct {
	key     K
	n       int64
	granted chan struct{}
}

// NewBudget returns a budget of limit units. A single holder may use at most `share` units.
func NewBudget[K comparable](limit, share int64) *Budget[K] {
	return &Budget[K]{limit: limit, share: min(share, limit), byKey: map[K]int64{}}
}

// Share returns the maximum number of units that one holder may use.
func (b *Budget[K]) Share() int64 { return b.share }

// Used returns how many units are in use.
func (b *Budget[K]) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Shortage says why [Budget.Take] did not succeed; Enough means that it did.
type Shortage uint8

// Values of Shortage. OfAll means that all holders together use too much, OfHolder that the holder
// itself uses too much.
const (
	Enough Shortage = iota
	OfAll
	OfHolder
)

// Take acquires n units for a holder and returns Enough. The caller must return the units with
// Give. If too few units are free, Take waits for them. If they are still not free after the
// duration `wait`, Take returns the reason.
func (b *Budget[K]) Take(key K, n int64, wait time.Duration) Shortage {
	b.mu.Lock()
	lacks := b.lacks(key, n)
	if lacks == Enough && b.waiting.Len() > 0 && wait > 0 {
		lacks = OfAll // earlier callers are waiting, so queue behind them
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
	case <-r.granted: // the request was granted just after the timer fired
		return Enough
	default:
	}
	b.waiting.Remove(place)
	lacks = max(b.lacks(key, n), OfAll)
	b.grant() // the removed request may have blocked smaller requests behind it
	return lacks
}

// Give returns n units that a holder has acquired.
func (b *Budget[K]) Give(key K, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	if b.byKey[key] -= n; b.byKey[key] == 0 {
		delete(b.byKey, key)
	}
	b.grant()
}

func (b *Budget[K]) lacks(key K, n int64) Shortage {
	switch {
	case b.byKey[key]+n > b.share:
		return OfHolder
	case b.used+n > b.limit:
		return OfAll
	}
	return Enough
}

func (b *Budget[K]) take(key K, n int64) {
	b.used += n
	b.byKey[key] += n
}

// grant grants waiting requests in their order. It skips a request with which its holder would use
// more than b.share, so that the request does not block other holders. It stops at the first
// request for which too few units of the whole budget are free. The caller must hold mu.
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
