package pubsub

import (
	"context"
	"slices"
	"sync"

	"github.com/badged/badged/internal/base/wait"
)

// memorySubscription is a subscription of [Memory]: it has a queue of updates, and a goroutine
// that passes these updates to the handler.
type memorySubscription struct {
	bus     *Memory
	handler Handler

	joined map[Address]struct{} // guarded by bus.mu; nil once closed

	pending chan struct{} // contains a value while queue or gap may be set
	closing chan struct{} // closed by the first Close
	done    chan struct{} // closed when run has returned

	mu    sync.Mutex
	queue []update
	gap   bool // updates before the first update in queue were deleted
}

// Join implements [Subscription]. It never blocks.
func (s *memorySubscription) Join(_ context.Context, addresses ...Address) error {
	s.bus.mu.Lock()
	defer s.bus.mu.Unlock()
	if s.joined == nil {
		return ErrClosed
	}
	for _, a := range addresses {
		if _, ok := s.joined[a]; !ok {
			s.joined[a] = struct{}{}
			s.bus.joined[a] = append(s.bus.joined[a], s)
		}
	}
	return nil
}

// Leave implements [Subscription].
func (s *memorySubscription) Leave(_ context.Context, addresses ...Address) error {
	s.bus.mu.Lock()
	defer s.bus.mu.Unlock()
	if s.joined == nil {
		return ErrClosed
	}
	for _, a := range addresses {
		s.leave(a)
	}
	return nil
}

// leave removes a from the joined addresses. The caller holds bus.mu.
func (s *memorySubscription) leave(a Address) {
	if _, ok := s.joined[a]; !ok {
		return
	}
	delete(s.joined, a)
	if others := s.bus.joined[a]; len(others) > 1 {
		s.bus.joined[a] = slices.DeleteFunc(others, func(o *memorySubscription) bool { return o == s })
	} else {
		delete(s.bus.joined, a)
	}
}

// Close implements [Subscription].
func (s *memorySubscription) Close() error {
	s.bus.mu.Lock()
	if s.joined != nil {
		for a := range s.joined {
			s.leave(a)
		}
		s.joined = nil
		delete(s.bus.subs, s)
		close(s.closing)
	}
	s.bus.mu.Unlock()
	<-s.done
	return nil
}

// enqueue queues an update for run. If the queue is full, it first deletes all queued updates.
func (s *memorySubscription) enqueue(u update) {
	s.mu.Lock()
	if len(s.queue) >= memoryQueueLimit {
		s.drop()
	}
	s.queue = append(s.queue, u)
	s.mu.Unlock()
	wait.Wake(s.pending)
}

// lose deletes the queued updates and makes run call HandleGap.
func (s *memorySubscription) lose() {
	s.mu.Lock()
	s.drop()
	s.mu.Unlock()
	wait.Wake(s.pending)
}

// drop empties the queue. The caller holds mu.
func (s *memorySubscription) drop() {
	clear(s.queue)
	s.queue = s.queue[:0]
	s.gap = true
}

// take returns the queue, and uses buffer as the new queue.
func (s *memorySubscription) take(buffer []update) (queue []update, gap bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	queue, gap = s.queue, s.gap
	s.queue, s.gap = buffer, false
	return queue, gap
}

// run calls the handler until Close.
func (s *memorySubscription) run() {
	defer close(s.done)
	// Two buffers are used in turn as the queue. A buffer with a capacity above `keep` is not
	// used again, so that an idle subscription uses little memory after a burst.
	const keep = 4096
	var buffer []update
	for {
		select {
		case <-s.closing:
			return
		case <-s.pending:
		}
		queue, gap := s.take(buffer)
		if gap {
			s.bus.counters.gaps.Add(1)
			s.handler.HandleGap()
		}
		for _, u := range queue {
			select {
			case <-s.closing:
				return
			default:
			}
			u.deliver(s.handler)
		}
		clear(queue)
		if buffer = queue[:0]; cap(buffer) > keep {
			buffer = nil
		}
	}
}
