// Package workers writes to many sessions with few goroutines.
//
// It does not know what the sessions write. ADR 23 has the reasons.
package workers

import (
	"runtime"
	"sync"
	"time"
)

// stalled is the time without progress after which the pool starts more goroutines: slow
// clients may block the goroutines that run.
const stalled = 5 * time.Millisecond

// Writer writes the frames that a session has to send.
type Writer interface{ Write() }

// Pool writes to sessions that have frames to send, in order of arrival. An update of a room
// makes thousands of sessions send at once. A goroutine for each, with a stack that has to
// grow, would cost more than the frame. Pool is safe for concurrent use, and has no goroutine
// while there is nothing to send.
type Pool struct {
	mu sync.Mutex
	// queue has the waiting sessions, from index next on.
	queue []Writer
	next  int
	// writing is the number of goroutines that write, taken the number of sessions that they
	// have removed from the queue. watched is set while a call of watch is scheduled.
	writing, taken int
	watched        bool
	// cost is the average time that a goroutine spends on a session; 0 before the first.
	cost time.Duration
}

// FrameCost stays within these bounds, even if a clock jumps or clients are slow.
const (
	leastFrameCost = 2 * time.Microsecond
	mostFrameCost  = 50 * time.Microsecond
)

// FrameCost returns roughly the processor time of a frame.
func (c *Pool) FrameCost() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return min(max(leastFrameCost, c.cost), mostFrameCost)
}

// measure updates the average with the time that some sessions took. The caller holds the
// mutex.
func (c *Pool) measure(took time.Duration, sessions int) {
	c.cost += (min(took/time.Duration(sessions), mostFrameCost) - c.cost) / 8
}

// Add queues a session, and starts a goroutine if more may run.
func (c *Pool) Add(s Writer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = append(c.queue, s)
	switch {
	case c.writing < runtime.GOMAXPROCS(0):
		c.writing++
		go c.write()
	case !c.watched: // all running goroutines may be blocked by slow clients
		c.watched = true
		c.watch()
	}
}

// write serves queued sessions until the queue is empty.
func (c *Pool) write() {
	const enough = 64 // sessions between two measurements
	began, done := time.Now(), 0
	for {
		c.mu.Lock()
		if done == enough {
			c.measure(time.Since(began), done)
			began, done = time.Now(), 0
		}
		if c.next == len(c.queue) {
			c.queue, c.next = nil, 0
			c.writing--
			c.mu.Unlock()
			return
		}
		s := c.queue[c.next]
		c.queue[c.next] = nil
		c.next++
		c.taken++
		c.mu.Unlock()
		s.Write()
		done++
	}
}

// watch checks after a while whether any session was served, and doubles the goroutines if
// not. It repeats this while sessions are queued. The caller holds the mutex.
func (c *Pool) watch() {
	taken := c.taken
	time.AfterFunc(stalled, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		waiting := len(c.queue) - c.next
		if waiting == 0 {
			c.watched = false
			return
		}
		if c.taken == taken {
			for range min(waiting, c.writing) {
				c.writing++
				go c.write()
			}
		}
		c.watch()
	})
}
