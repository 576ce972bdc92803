// Package workers writes to many sessions with few goroutines.
//
// It does not know what the sessions write. ADR 23 has the reasons.
package workers

import (
	"runtime"
	"sync"
	"time"
)

// stalled is how long the pool waits for progress. If no session was served in this time, slow
// clients may block all goroutines of the pool, and the pool starts more goroutines.
const stalled = 5 * time.Millisecond

// Writer writes the frames that a session has to send.
type Writer interface{ Write() }

// Pool writes to sessions that have frames to send, in the order in which they were added. It
// is needed since an update of a room makes thousands of sessions send at once: one goroutine
// for each, with a stack that has to grow, would cost more than the frame. Pool is safe for
// concurrent use. It has no goroutine while there is nothing to send.
type Pool struct {
	mu sync.Mutex
	// queue has the sessions that must still be served, from index next on.
	queue []Writer
	next  int
	// writing is the number of goroutines that serve sessions. taken is the number of sessions
	// that were ever removed from the queue. watched is set while a call of watch is scheduled.
	writing, taken int
	watched        bool
	// cost is the moving average of the time that a goroutine spends on a session; 0 before the
	// first measurement.
	cost time.Duration
}

// FrameCost returns a value between these bounds, even if a clock jumps or clients are slow.
const (
	leastFrameCost = 2 * time.Microsecond
	mostFrameCost  = 50 * time.Microsecond
)

// FrameCost returns roughly the processor time for one frame.
func (c *Pool) FrameCost() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return min(max(leastFrameCost, c.cost), mostFrameCost)
}

// measure updates the average. took is the time that some sessions took together. The caller
// holds the mutex.
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

// watch checks, after the duration stalled, whether any session was served. If none was, it
// doubles the number of goroutines. It repeats this while sessions are queued. The caller holds
// the mutex.
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
