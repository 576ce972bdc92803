package pubsub

import (
	"context"
	"fmt"
	"sync"
)

// memoryQueueLimit is the maximum number of updates that are queued for one handler; they use some
// tens of MiB. The queue of a handler that does not block stays far shorter, since a batch of the
// projector has only thousands of updates.
const memoryQueueLimit = 1 << 16

// memoryWakeLimit is the maximum number of wakes that are queued for one call of Wakes. Further
// wakes are dropped: a lost wake is allowed, see [Bus].Wake.
const memoryWakeLimit = 1 << 12

// Memory is the bus of a single process, and the default bus.
//
// Each subscription has a queue of 65,536 updates, and a goroutine that calls its handler. So
// Publish never waits for a handler. If a handler is so slow that its queue becomes full, the
// bus deletes the queued updates and calls HandleGap.
type Memory struct {
	counters counters
	closing  chan struct{} // closed by Close

	mu     sync.RWMutex
	closed bool
	joined map[Address][]*memorySubscription // lists each subscription at most once per address
	subs   map[*memorySubscription]struct{}
	wakes  map[chan int]struct{} // each receives partition numbers
}

var _ Bus = (*Memory)(nil)

// NewMemory returns an in-process bus. Close it after use.
func NewMemory() *Memory {
	return &Memory{
		closing: make(chan struct{}),
		joined:  make(map[Address][]*memorySubscription),
		subs:    make(map[*memorySubscription]struct{}),
		wakes:   make(map[chan int]struct{}),
	}
}

// Publish implements [Bus]. It fails only if the bus is closed, or if ctx is done before the
// call.
func (m *Memory) Publish(ctx context.Context, users []Update, rooms []RoomUpdate) error {
	if err := ctx.Err(); err != nil {
		m.counters.publishErrors.Add(1)
		return fmt.Errorf("pubsub: publish %d updates: %w", len(users)+len(rooms), err)
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return ErrClosed
	}
	enqueue(m, users)
	enqueue(m, rooms)
	return nil
}

// enqueue queues updates for the subscriptions that have joined the addresses of the updates. The
// caller holds mu.
func enqueue[U any, P updateOf[U]](m *Memory, updates []U) {
	for i := range updates {
		subs := m.joined[P(&updates[i]).Address()]
		if len(subs) == 0 {
			continue
		}
		// Queue a copy of the update, since the caller may reuse the slice. Also, a pointer
		// into the slice would keep the whole slice in memory until a slow handler has received
		// the update.
		u := updates[i]
		for _, s := range subs {
			s.enqueue(P(&u))
		}
	}
}

// HasSubscribers implements [Bus]. Its result is exact.
func (m *Memory) HasSubscribers(a Address) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	_, ok := m.joined[a]
	return ok
}

// Subscribe implements [Bus].
func (m *Memory) Subscribe(h Handler) (Subscription, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, ErrClosed
	}
	s := &memorySubscription{
		bus:     m,
		handler: h,
		joined:  make(map[Address]struct{}),
		pending: make(chan struct{}, 1),
		closing: make(chan struct{}),
		done:    make(chan struct{}),
	}
	m.subs[s] = struct{}{}
	go s.run()
	return s, nil
}

// Wake implements [Bus]. It fails only if the bus is closed.
func (m *Memory) Wake(_ context.Context, partitions []int) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return ErrClosed
	}
	for w := range m.wakes {
		for _, p := range partitions {
			select {
			case w <- p:
			default:
			}
		}
	}
	return nil
}

// Wakes implements [Bus]. It returns [ErrClosed] if the bus is closed before ctx is done.
func (m *Memory) Wakes(ctx context.Context, wake func(partition int)) error {
	w := make(chan int, memoryWakeLimit)
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return ErrClosed
	}
	m.wakes[w] = struct{}{}
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		delete(m.wakes, w)
		m.mu.Unlock()
	}()

	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.closing:
			return ErrClosed
		case p := <-w:
			wake(p)
		}
	}
}

// Gap deletes the queued updates of every subscription, and makes each subscription call
// HandleGap. It is for implementations of [Bus] that receive updates over another transport and
// publish them to a Memory: call Gap when that transport may have lost updates. Gap does not
// block.
func (m *Memory) Gap() {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for s := range m.subs {
		s.lose()
	}
}

// Close implements [Bus].
func (m *Memory) Close() error {
	m.mu.Lock()
	if !m.closed {
		m.closed = true
		close(m.closing)
	}
	subs := make([]*memorySubscription, 0, len(m.subs))
	for s := range m.subs {
		subs = append(subs, s)
	}
	m.mu.Unlock()
	for _, s := range subs {
		_ = s.Close() // never fails
	}
	return nil
}

// Stats returns the counters of the bus. It is safe for concurrent use.
func (m *Memory) Stats() Stats { return m.counters.stats() }
