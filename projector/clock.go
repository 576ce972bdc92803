package projector

import (
	"sync/atomic"
	"time"
)

// databaseClock tells the time of the database, from its last answer and the
// time since. It is safe for concurrent use; until it is set it is the clock of
// this process.
type databaseClock struct {
	ahead atomic.Int64 // nanoseconds
}

// set takes the time that the database has just told.
func (c *databaseClock) set(now time.Time) { c.ahead.Store(int64(time.Until(now))) }

// now returns the database's time in microseconds, as Postgres stores it.
func (c *databaseClock) now() time.Time {
	return time.Now().Add(time.Duration(c.ahead.Load())).Truncate(time.Microsecond)
}
