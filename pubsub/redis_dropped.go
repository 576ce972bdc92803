package pubsub

import (
	"log/slog"
	"sync"
	"time"
)

// complaintInterval is how often dropped messages are logged at most.
const complaintInterval = 10 * time.Second

// complaints logs an event that may repeat endlessly: the first time at once,
// then at intervals with a count. It is safe for concurrent use.
type complaints struct {
	mu    sync.Mutex
	last  time.Time
	count int // since the last
}

// log logs a dropped message.
func (c *complaints) log(l *slog.Logger, what, channel string, err error) {
	c.mu.Lock()
	c.count++
	now, n := time.Now(), c.count
	due := now.Sub(c.last) >= complaintInterval
	if due {
		c.last, c.count = now, 0
	}
	c.mu.Unlock()
	if due {
		l.Warn(what, "channel", channel, "error", err, "dropped", n)
	}
}
