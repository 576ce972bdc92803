package logread

import (
	"sync"
	"time"
)

// Watch remembers since when transactions have been seen open. It is safe for
// concurrent use; the zero Watch has no patience.
type Watch struct {
	// Patience is how long readers wait for a transaction that is open. Most end
	// within milliseconds, and moving the events of one that does not costs about
	// as much as appending them again.
	Patience time.Duration

	mu   sync.Mutex
	open map[int64]time.Time
}

// young returns the open transactions of s after a position that have not been
// seen for as long as the patience, in ascending order.
func (w *Watch) young(s *snapshot, after int64, now time.Time) []int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.open {
		if s.ended(id) {
			delete(w.open, id)
		}
	}
	var young []int64
	for _, id := range s.open {
		since, seen := w.open[id]
		if !seen {
			if w.open == nil {
				w.open = map[int64]time.Time{}
			}
			w.open[id], since = now, now
		}
		if id > after && now.Sub(since) < w.Patience {
			young = append(young, id)
		}
	}
	return young
}
