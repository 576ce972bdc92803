// Package crew writes to many sessions with few goroutines.
//
// It does not know what is written. ADR 23 has the reasons.
package crew

import (
	"runtime"
	"sync"
	"time"
)

// stalled is how long no frame may be written before more goroutines write: those
// that do may wait for slow clients.
const stalled = 5 * time.Millisecond

// Writer writes what a session has to send.
type Writer interface{ Write() }

// Crew writes to sessions that have frames to send, in the order in which they came.
// An update of a room makes thousands send at once: a goroutine for each, with a
// stack that has to grow, would cost more than the frame. It is safe for concurrent
// use, and has no goroutine while there is nothing to send.
type Crew struct {
	mu sync.Mutex
	// queue has the sessions that wait, from next on.
	queue []Writer
	next  int
	// writing is how many goroutines write, taken how many sessions they have taken
	// from the queue. watched is set while watch is due.
	writing, taken int
	watched        bool
	// cost is about how long a goroutine takes for a session; 0 before the first.
	cost time.Duration
}

// The bounds of FrameCost, for clocks that jump and clients that are slow.
const (
	leastFrameCost = 2 * time.Microsecond
	mostFrameCost  = 50 * time.Microsecond
)

// FrameCost returns roughly the processor time of a frame.
func (c *Crew) FrameCost() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return min(max(leastFrameCost, c.cost), mostFrameCost)
}

// measure takes into account how long some sessions took. The caller holds the mutex.
func (c *Crew) measure(took time.Duration, sessions int) {
	c.cost += (min(took/time.Duration(sessions), mostFrameCost) - c.cost) / 8
}

// Add makes the crew work for a session.
func (c *Crew) Add(s Writer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = append(c.queue, s)
	switch {
	case c.writing < runtime.GOMAXPROCS(0):
		c.writing++
		go c.write()
	case !c.watched: // all that write may wait for slow clients
		c.watched = true
		c.watch()
	}
}

// write works for sessions until none waits.
func (c *Crew) write() {
	const enough = 64 // to measure
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

// watch looks soon whether the crew is stalled, and doubles it if so. The caller
// holds the mutex.
func (c *Crew) watch() {
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
