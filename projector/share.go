package projector

import (
	"context"
	"sync"
	"time"
)

// Share limits how many partitions this process folds at once, if it has projectors of several
// databases. More concurrency than there are processors only makes the batches smaller and
// more frequent. Share is safe for concurrent use.
type Share struct{ slots chan struct{} }

// NewShare returns a Share with which at most n partitions are folded at once.
func NewShare(n int) *Share { return &Share{make(chan struct{}, n)} }

// longBatch is how long a batch may occupy a slot of a Share. After this time the slot is released
// although the batch still runs: if a database hangs, its batches must not block the batches of
// other databases.
const longBatch = 250 * time.Millisecond

// take acquires a slot, the right to fold a batch, and returns the function that releases the slot.
// ok is false if ctx is done before. A nil Share has no limit.
func (s *Share) take(ctx context.Context) (leave func(), ok bool) {
	if s == nil {
		return func() {}, true
	}
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, false
	}
	free := sync.OnceFunc(func() { <-s.slots })
	timer := time.AfterFunc(longBatch, free)
	return func() {
		timer.Stop()
		free()
	}, true
}
