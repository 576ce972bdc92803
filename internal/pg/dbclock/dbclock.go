// Package dbclock estimates the time of a database without asking the database each time.
// Stored times come from the clock of the database that stores them, since the clocks of
// machines differ and may be set.
//
// The package does not know tables. ADR 136 has the reasons.
package dbclock

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"
	"time"
)

const (
	// Interval is how often a process compares its clock with that of a database.
	Interval = 5 * time.Second
	// MaxDifference is how far the two clocks may differ. Beyond it badged does nothing
	// irreversible: one of the clocks is wrong, and it is not known which.
	MaxDifference = time.Minute
	// maxRoundTrip is the longest round trip whose result replaces an earlier reading. A
	// reading is wrong by at most half of its round trip.
	maxRoundTrip = 250 * time.Millisecond
)

// DifferError means that the clocks of this process and of a database differ by more than
// MaxDifference.
type DifferError struct {
	// Ahead is how far the database is ahead of the process.
	Ahead time.Duration
}

// Error implements error.
func (e *DifferError) Error() string {
	ahead, than := e.Ahead, "ahead of"
	if ahead < 0 {
		ahead, than = -ahead, "behind"
	}
	return fmt.Sprintf("the clock of the database is %s %s this machine's, and it is not known which is right: set the clocks, such as with NTP", ahead.Round(time.Second), than)
}

// reading is one reading of the database's clock. The field there has the time of the
// database, and the field at has the time of this process at the same moment, with its
// monotonic clock.
type reading struct{ there, at time.Time }

// Clock computes the time of a database from the last reading and the monotonic time since
// then, so setting the clock of this machine does not change it. Before the first reading
// it returns the time of this machine. The zero value is ready. It is safe for concurrent
// use.
type Clock struct{ last atomic.Pointer[reading] }

// Set stores a reading: now is the time that the database has just returned.
func (c *Clock) Set(now time.Time) { c.last.Store(&reading{now, time.Now()}) }

// Now returns the time of the database, in microseconds as Postgres stores it.
func (c *Clock) Now() time.Time {
	r := c.last.Load()
	if r == nil {
		return time.Now().Truncate(time.Microsecond)
	}
	return r.there.Add(time.Since(r.at)).Truncate(time.Microsecond)
}

// Middle returns the median of the times of databases, so that one wrong clock among three
// has no effect. Clocks that were never read do not count. The clock of this machine counts
// if the number of the other clocks is even or 0.
func Middle(clocks iter.Seq[*Clock]) time.Time {
	var told []time.Time
	for c := range clocks {
		if c.last.Load() != nil {
			told = append(told, c.Now())
		}
	}
	if len(told)%2 == 0 {
		told = append(told, time.Now().Truncate(time.Microsecond))
	}
	slices.SortFunc(told, time.Time.Compare)
	return told[len(told)/2]
}

// Ahead returns how far the database is ahead of this machine's clock as it is set now.
func (c *Clock) Ahead() time.Duration { return time.Until(c.Now()) }

// Check returns a [*DifferError] if the clocks differ by more than MaxDifference.
func (c *Clock) Check() error {
	if ahead := c.Ahead(); ahead.Abs() > MaxDifference {
		return &DifferError{ahead}
	}
	return nil
}

// Measure reads the clock of the database with ask. An answer that took longer than
// maxRoundTrip is ignored, unless it is the first one or shows that the clock of the
// database was set.
func (c *Clock) Measure(ctx context.Context, ask func(context.Context) (time.Time, error)) error {
	asked := time.Now()
	there, err := ask(ctx)
	if err != nil {
		return err
	}
	took := time.Since(asked)
	read := &reading{there, asked.Add(took / 2)}
	if last := c.last.Load(); last == nil || took <= maxRoundTrip || read.there.Sub(last.there.Add(read.at.Sub(last.at))).Abs() > took {
		c.last.Store(read)
	}
	return nil
}
