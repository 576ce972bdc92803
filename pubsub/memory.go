package pubsub

import (
	"context"
	"fmt"
	"sync"
)

// memoryQueueLimit is the most updates that wait for one handler: some tens of
// MiB. A handler that does not block stays far below it (a batch of the
// projector has thousands).
const memoryQueueLimit = 1 << 16

// Memory is the bus of a single process, and the default.
//
// Each subscription has a queue of 65,536 updates and a goroutine that calls
// its handler, so that Publish never waits for a handler. When a queue is
// full, because its handler blocked, its updates are dropped and HandleGap is
// called.
type Memory struct {
	counters counters
	closing  chan struct{} // closed by Close

	mu     sync.RWMutex
	closed bool
	joined map[Address][]*memorySubscription // each subscription once
	subs   map[*memorySubscription]struct{}
	wakes  map[*memoryWakes]struct{}
}

var _ Bus = (*Memory)(nil)

// NewMemory returns an in-process bus. Close it after use.
func NewMemory() *Memory {
	return &Memory{
		closing: make(chan struct{}),
		joined:  make(map[Address][]*memorySubscription),
		subs:    make(map[*memorySubscription]struct{}),
		wakes:   make(map[*memoryWakes]struct{}),
	}
}

// Publish implements [Bus]. It fails only when the bus is closed, or when ctx is
// done before the call.
func (m *Memory) Publish(ctx context.Context, updates []Update) error {
	return publish(ctx, m, updates, func(u *Update) (Address, memoryMessage) {
		return u.Address(), memoryMessage{user: u}
	})
}

// PublishRooms implements [Bus] as Publish does.
func (m *Memory) PublishRooms(ctx context.Context, updates []RoomUpdate) error {
	return publish(ctx, m, updates, func(u *RoomUpdate) (Address, memoryMessage) {
		return u.Address(), memoryMessage{room: u}
	})
}

// publish queues updates for the subscriptions that have joined their addresses.
func publish[U any](ctx context.Context, m *Memory, updates []U, messageOf func(*U) (Address, memoryMessage)) error {
	if err := ctx.Err(); err != nil {
		m.counters.publishErrors.Add(1)
		return fmt.Errorf("pubsub: publish %d updates: %w", len(updates), err)
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return ErrClosed
	}
	for i := range updates {
		to, _ := messageOf(&updates[i])
		subs := m.joined[to]
		if len(subs) == 0 {
			continue
		}
		// A copy: an update held for a slow client must not keep the whole
		// slice, and the caller may reuse it.
		u := updates[i]
		_, message := messageOf(&u)
		for _, s := range subs {
			s.enqueue(message)
		}
	}
	return nil
}

// HasSubscribers implements [Bus]. It is exact.
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

// Wake implements [Bus]. It fails only when the bus is closed.
func (m *Memory) Wake(_ context.Context, partitions []int) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return ErrClosed
	}
	for w := range m.wakes {
		w.add(partitions)
	}
	return nil
}

// Wakes implements [Bus]. It returns [ErrClosed] when the bus is closed before
// ctx is done.
func (m *Memory) Wakes(ctx context.Context, wake func(partition int)) error {
	w := &memoryWakes{partitions: make(map[int]struct{}), pending: make(chan struct{}, 1)}
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
		case <-w.pending:
			for p := range w.take() {
				wake(p)
			}
		}
	}
}

// Gap drops the queue of every subscription and has HandleGap called instead. A
// bus that forwards updates from another transport into a Memory calls it when
// that transport may have lost some. It does not block.
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

// memoryWakes holds the partitions that a call of Wakes has yet to report, each
// once. Partitions are few: it needs no limit.
type memoryWakes struct {
	pending chan struct{} // holds a token while partitions may hold some

	mu         sync.Mutex
	partitions map[int]struct{}
}

func (w *memoryWakes) add(partitions []int) {
	w.mu.Lock()
	for _, p := range partitions {
		w.partitions[p] = struct{}{}
	}
	w.mu.Unlock()
	signal(w.pending)
}

func (w *memoryWakes) take() map[int]struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := w.partitions
	w.partitions = make(map[int]struct{}, len(taken))
	return taken
}

// signal puts a token into a channel of capacity 1 unless it holds one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
