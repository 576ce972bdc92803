// Package slots bounds how much work on several databases runs at once.
package slots

import (
	"context"
	"sync"
	"time"
)

// Slots are taken by work on several databases. It is safe for concurrent use.
type Slots struct{ free chan struct{} }

// New returns n slots.
func New(n int) *Slots { return &Slots{make(chan struct{}, n)} }

// long is when work loses its slot: what hangs on one database must not stop what is
// done on others.
const long = 250 * time.Millisecond

// Take takes a slot, in the order of the calls, and returns what gives it back. It reports
// false if ctx is done before. If s is nil there is room for all.
func (s *Slots) Take(ctx context.Context) (leave func(), ok bool) {
	if s == nil {
		return func() {}, true
	}
	select {
	case s.free <- struct{}{}:
	case <-ctx.Done():
		return nil, false
	}
	free := sync.OnceFunc(func() { <-s.free })
	timer := time.AfterFunc(long, free)
	return func() {
		timer.Stop()
		free()
	}, true
}
