package logread

import (
	"sync"
	"time"
)

// Watch records when each open transaction was first seen. Readers use it to wait for open
// transactions; with the zero Watch they do not wait. It is safe for concurrent use.
type Watch struct {
	// Patience is how long readers wait for an open transaction before they read events of
	// transactions with greater ids. Most transactions end within milliseconds. If a
	// transaction ends later, its events must be moved in the log, which costs about as much
	// as appending them again.
	Patience time.Duration

	mu   sync.Mutex
	open map[int64]time.Time
}

// young returns the transactions for which readers wait, in ascending order. These
// transactions are open in the snapshot s, have an id above `after`, and were first seen less
// than Patience before `now`, the current time.
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
