package badges

import (
	"strings"
	"sync"
)

// maxKnown is the maximum number of ids of members that a reader caches. The ids use about 10
// MB.
const maxKnown = 100_000

// known has the users that an earlier read has found to be members or former members of rooms. For
// these users, a reader skips the first statement (see badges.sql) and runs only the statement for
// members. This remains correct if a user is no longer a member, since that statement is correct
// for all users. known is safe for concurrent use.
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

// add adds a user. If the set is full, it first removes an arbitrary user.
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
