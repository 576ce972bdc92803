// Package workers writes to many sessions with few goroutines.
//
// It does not know what the sessions write. ADR 23 has the reasons.
package workers

import (
	"runtime"
	"sync"
	"time"
)

// stallTimeout is how long the pool waits for progress. If no session has left the queue in this
// time, slow clients may be blocking all goroutines of the pool, so the pool starts more.
const stallTimeout = 5 * time.Millisecond

// Writer writes the frames that a session has to send.
type Writer interface{ Write() }

// Pool writes to sessions that have frames to send, in the order in which they were added. It
// exists since an update of a room makes thousands of sessions send at once. A new goroutine
// for each session, whose stack must grow, would cost more than writing the frame. Pool is safe
// for concurrent use. It has no goroutine while there is nothing to send.
type Pool struct {
	mu sync.Mutex
	// queue has the queued sessions, from the index `next` on. Its elements before `next` are nil.
	queue []Writer
	next  int
	// writing is the number of goroutines that serve sessions. taken is the total number of
	// sessions that were removed from the queue so far. watched is true while watch checks the
	// progress.
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

// measure updates the average c.cost. took is the time that a goroutine has spent on the given
// number of sessions. The caller holds the mutex.
func (c *Pool) measure(took time.Duration, sessions int) {
	c.cost += (min(took/time.Duration(sessions), mostFrameCost) - c.cost) / 8
}

// Add queues a session. It starts another goroutine if fewer than GOMAXPROCS goroutines serve
// sessions.
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

// After stallTimeout, watch checks whether a session has left the queue. If not, watch doubles the
// number of goroutines (but starts no more than there are queued sessions). It repeats this while
// sessions are queued. The caller holds the mutex.
func (c *Pool) watch() {
	taken := c.taken
	time.AfterFunc(stallTimeout, func() {
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
