package gateway

import (
	"context"
	"sync/atomic"
	"time"
)

// moment is a time on the clock of the database, in microseconds since 1970; 0 is
// none.
type moment int64

// older returns the earlier of two moments; either may be none.
func (m moment) older(other moment) moment {
	if m == 0 || other != 0 && other < m {
		return other
	}
	return m
}

// maxRoundTrip is the longest round trip that updates the clock. The error is at
// most half of it.
const maxRoundTrip = 250 * time.Millisecond

// databaseClock tells the time of the database, which stamps events: the clocks of
// machines differ. It is safe for concurrent use.
type databaseClock struct {
	ahead atomic.Int64 // of the clock here, in microseconds
	set   bool         // for measure alone
}

func (c *databaseClock) now() moment { return moment(time.Now().UnixMicro() + c.ahead.Load()) }

// measure compares the clocks if the database answers. It is not safe for
// concurrent use.
func (c *databaseClock) measure(ctx context.Context, ask func(context.Context) (time.Time, error)) {
	asked := time.Now()
	there, err := ask(ctx)
	took := time.Since(asked)
	if err != nil || c.set && took > maxRoundTrip {
		return
	}
	c.ahead.Store(there.Sub(asked.Add(took / 2)).Microseconds())
	c.set = true
}

// observeStale records how old the news was that a client has just been sent. since
// is when its oldest change was appended or, if reconciliation found it, when the
// client was last up to date.
func (g *Gateway) observeStale(since moment) {
	if since == 0 {
		return
	}
	g.metrics.stale.Observe(max(0, float64(g.clock.now()-since)/1e6))
}
