package pubsub

import (
	"context"
	"slices"
	"sync"
)

// memorySubscription is a subscription of [Memory]: a queue, and the goroutine
// that empties it into the handler.
type memorySubscription struct {
	bus     *Memory
	handler Handler

	users map[User]struct{} // guarded by bus.mu; nil once closed

	pending chan struct{} // holds a token while queue or gap may be set
	closing chan struct{} // closed by the first Close
	done    chan struct{} // closed when run has returned

	mu    sync.Mutex
	queue []*Update
	gap   bool // updates before those in the queue were dropped
}

// Join implements [Subscription]. It never waits.
func (s *memorySubscription) Join(_ context.Context, users ...User) error {
	s.bus.mu.Lock()
	defer s.bus.mu.Unlock()
	if s.users == nil {
		return ErrClosed
	}
	for _, u := range users {
		if _, ok := s.users[u]; !ok {
			s.users[u] = struct{}{}
			s.bus.joined[u] = append(s.bus.joined[u], s)
		}
	}
	return nil
}

// Leave implements [Subscription].
func (s *memorySubscription) Leave(_ context.Context, users ...User) error {
	s.bus.mu.Lock()
	defer s.bus.mu.Unlock()
	if s.users == nil {
		return ErrClosed
	}
	for _, u := range users {
		s.leave(u)
	}
	return nil
}

// leave ends the interest in u. The caller holds bus.mu.
func (s *memorySubscription) leave(u User) {
	if _, ok := s.users[u]; !ok {
		return
	}
	delete(s.users, u)
	if others := s.bus.joined[u]; len(others) > 1 {
		s.bus.joined[u] = slices.DeleteFunc(others, func(o *memorySubscription) bool { return o == s })
	} else {
		delete(s.bus.joined, u)
	}
}

// Close implements [Subscription].
func (s *memorySubscription) Close() error {
	s.bus.mu.Lock()
	if s.users != nil {
		for u := range s.users {
			s.leave(u)
		}
		s.users = nil
		delete(s.bus.subs, s)
		close(s.closing)
	}
	s.bus.mu.Unlock()
	<-s.done
	return nil
}

// enqueue hands u to run. It drops the queue first if that is full.
func (s *memorySubscription) enqueue(u *Update) {
	s.mu.Lock()
	if len(s.queue) >= memoryQueueLimit {
		s.drop()
	}
	s.queue = append(s.queue, u)
	s.mu.Unlock()
	signal(s.pending)
}

// lose drops the queue and has run call HandleGap.
func (s *memorySubscription) lose() {
	s.mu.Lock()
	s.drop()
	s.mu.Unlock()
	signal(s.pending)
}

// drop empties the queue. The caller holds mu.
func (s *memorySubscription) drop() {
	clear(s.queue)
	s.queue = s.queue[:0]
	s.gap = true
}

// take returns the queue and puts buffer in its place.
func (s *memorySubscription) take(buffer []*Update) (queue []*Update, gap bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	queue, gap = s.queue, s.gap
	s.queue, s.gap = buffer, false
	return queue, gap
}

// run calls the handler until Close.
func (s *memorySubscription) run() {
	defer close(s.done)
	// Two buffers take turns. A large one is dropped after a burst, so that an
	// idle subscription holds little memory.
	const keep = 4096
	var buffer []*Update
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
			s.handler.HandleUpdate(u)
		}
		clear(queue)
		if buffer = queue[:0]; cap(buffer) > keep {
			buffer = nil
		}
	}
}
