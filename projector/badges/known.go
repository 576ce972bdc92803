package badges

import (
	"strings"
	"sync"
)

// maxKnown is how many members a reader remembers at most, in some 10 MB.
const maxKnown = 100_000

// known are users that an earlier read has found to be, or to have been, members of
// rooms. For them a reader leaves out the statement that finds this out. That stays
// right: nothing undoes it, and the statement for members is right for others too. It
// is safe for concurrent use.
type known struct {
	mu  sync.RWMutex
	ids map[string]struct{}
}

func (k *known) has(userID string) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	_, ok := k.ids[userID]
	return ok
}

// add adds a user, in place of any other if there are too many.
func (k *known) add(userID string) {
	if k.has(userID) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ids == nil {
		k.ids = map[string]struct{}{}
	}
	if len(k.ids) == maxKnown {
		for other := range k.ids {
			delete(k.ids, other)
			break
		}
	}
	k.ids[strings.Clone(userID)] = struct{}{} // a substring would keep a request in memory
}
