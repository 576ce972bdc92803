package projector

import (
	"context"
	"sync"
	"time"
)

// Share bounds how many partitions several projectors of this process fold at once.
// Folding more at a time than the processor can makes more and smaller batches of the
// same events. It is safe for concurrent use.
type Share struct{ slots chan struct{} }

// NewShare returns a share of n partitions at once.
func NewShare(n int) *Share { return &Share{make(chan struct{}, n)} }

// longBatch is when a batch loses its slot: batches of a database that hangs must not
// stop those of others.
const longBatch = 250 * time.Millisecond

// take takes a slot of the share and returns what gives it back. It reports false if ctx
// is done before. A nil share has room for all.
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
