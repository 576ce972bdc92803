package limit

import (
	"context"
	"sync"
	"time"
)

// AtOnce limits how many callers with the same key, such as a user, run at the same time. It is
// safe for concurrent use.
type AtOnce[K comparable] struct {
	limit int
	wait  time.Duration

	mu    sync.Mutex
	byKey map[K]*places
}

// places is the semaphore of one key. users is the number of callers that have acquired the
// semaphore or wait for it.
type places struct {
	taken chan struct{}
	users int
}

// NewAtOnce returns an AtOnce that lets `limit` callers of each key run at the same time; 0 means
// no limit. A further caller of the key waits for at most the duration `wait`.
func NewAtOnce[K comparable](limit int, wait time.Duration) *AtOnce[K] {
	return &AtOnce[K]{limit: limit, wait: wait, byKey: map[K]*places{}}
}

// Enter acquires a place for a caller with a key. ok reports whether it succeeded; if so, the
// caller must call leave exactly once.
func (a *AtOnce[K]) Enter(ctx context.Context, key K) (leave func(), ok bool) {
	if a.limit <= 0 {
		return func() {}, true
	}
	p := a.join(key)
	select {
	case p.taken <- struct{}{}:
	default:
		timer := time.NewTimer(a.wait)
		defer timer.Stop()
		select {
		case p.taken <- struct{}{}:
		case <-timer.C:
			a.part(key, p)
			return nil, false
		case <-ctx.Done():
			a.part(key, p)
			return nil, false
		}
	}
	return func() {
		<-p.taken
		a.part(key, p)
	}, true
}

func (a *AtOnce[K]) join(key K) *places {
	a.mu.Lock()
	defer a.mu.Unlock()
	p, ok := a.byKey[key]
	if !ok {
		p = &places{taken: make(chan struct{}, a.limit)}
		a.byKey[key] = p
	}
	p.users++
	return p
}

// part is called when a caller no longer uses the semaphore of a key. When the last caller does so,
// part deletes the key.
func (a *AtOnce[K]) part(key K, p *places) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p.users--; p.users == 0 {
		delete(a.byKey, key)
	}
}
