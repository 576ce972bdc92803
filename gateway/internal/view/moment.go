package view

import (
	"context"
	"sync/atomic"
	"time"
)

// Moment is a time on the clock of the database, in microseconds since 1970; 0 is
// none.
type Moment int64

// Older returns the earlier of two moments; either may be none.
func (m Moment) Older(other Moment) Moment {
	if m == 0 || other != 0 && other < m {
		return other
	}
	return m
}

// maxRoundTrip is the longest round trip that updates the clock. The error is at
// most half of it.
const maxRoundTrip = 250 * time.Millisecond

// DatabaseClock tells the time of the database, which stamps events: the clocks of
// machines differ. It is safe for concurrent use.
type DatabaseClock struct {
	ahead atomic.Int64 // of the clock here, in microseconds
	set   bool         // for Measure alone
}

// Now returns the time of the database.
func (c *DatabaseClock) Now() Moment { return Moment(time.Now().UnixMicro() + c.ahead.Load()) }

// Measure compares the clocks if the database answers. It is not safe for
// concurrent use.
func (c *DatabaseClock) Measure(ctx context.Context, ask func(context.Context) (time.Time, error)) {
	asked := time.Now()
	there, err := ask(ctx)
	took := time.Since(asked)
	if err != nil || c.set && took > maxRoundTrip {
		return
	}
	c.ahead.Store(there.Sub(asked.Add(took / 2)).Microseconds())
	c.set = true
}
