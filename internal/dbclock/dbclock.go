// Package dbclock tells the time of a database. What lasts is decided by the clock of the
// database that stores it, since the clocks of machines differ and may be set.
//
// It does not know tables. ADR 136 has the reasons.
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
	// MaxDifference is how far the two may differ before nothing happens any more that
	// cannot be undone: one of them is wrong, and it is not known which.
	MaxDifference = time.Minute
	// maxRoundTrip is the longest round trip that replaces a reading. The error is at most
	// half of it.
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

// reading is what a clock said, and when, with the monotonic clock.
type reading struct{ there, at time.Time }

// Clock tells the time of a database from the last reading and the monotonic time since: a
// clock of this machine that is set changes nothing. Until the first reading it is that
// clock. The zero value is ready. It is safe for concurrent use.
type Clock struct{ last atomic.Pointer[reading] }

// Set takes the time that the database has just told.
func (c *Clock) Set(now time.Time) { c.last.Store(&reading{now, time.Now()}) }

// Now returns the time of the database, in microseconds as Postgres stores it.
func (c *Clock) Now() time.Time {
	r := c.last.Load()
	if r == nil {
		return time.Now().Truncate(time.Microsecond)
	}
	return r.there.Add(time.Since(r.at)).Truncate(time.Microsecond)
}

// Middle returns the time in the middle of what the clocks of databases tell, so that a wrong
// one among three is not believed. Those that were never read do not count. The clock of
// this machine counts if the others are even in number, or none.
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

// Ahead returns how far the database is ahead of the clock of this machine, as that is now.
func (c *Clock) Ahead() time.Duration { return time.Until(c.Now()) }

// Check returns a [*DifferError] if the clocks differ by more than MaxDifference.
func (c *Clock) Check() error {
	if ahead := c.Ahead(); ahead.Abs() > MaxDifference {
		return &DifferError{ahead}
	}
	return nil
}

// Measure asks the database for its time. A slow answer changes nothing
// unless it is the first one, or the clock of the database was set.
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
