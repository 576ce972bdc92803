package pubsub

import (
	"log/slog"
	"sync"
	"time"
)

// complaintInterval is how often dropped messages are logged at most.
const complaintInterval = 10 * time.Second

// complaints logs what may repeat without end: the first time, and then now and
// then with how often. It is safe for concurrent use.
type complaints struct {
	mu    sync.Mutex
	last  time.Time
	count int // since the last
}

// log logs a message that was dropped.
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
