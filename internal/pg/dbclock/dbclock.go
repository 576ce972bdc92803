// Package dbclock estimates the time of a database without a query each time. Times in the tables
// come from the clock of the database, since the clocks of machines differ and may be set.
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
	// Interval is how often a process compares its clock with the clock of a database.
	Interval = 5 * time.Second
	// MaxDifference is how far the clocks of a process and of a database may differ. If they
	// differ more, one clock is wrong and badged cannot know which, so it does nothing
	// irreversible.
	MaxDifference = time.Minute
	// maxRoundTrip is the longest round trip with which a reading replaces an earlier reading.
	// The error of a reading is at most half of its round trip.
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

// reading is one reading of the database's clock. there is the time of the database. at is the
// time of this process at the same moment, with its monotonic clock.
type reading struct{ there, at time.Time }

// Clock computes the time of a database as the last reading plus the monotonic time since the
// reading, so setting the clock of this machine does not change it. Before the first reading it
// returns the time of this machine. The zero value is ready to use. It is safe for concurrent
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

// Middle returns the median of the times of databases, so that one wrong clock among three has no
// effect. Middle ignores clocks that were never read. If the number of the other clocks is even,
// also 0, it adds the clock of this machine.
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

// Ahead returns how far the clock of the database is ahead of the present clock of this machine.
func (c *Clock) Ahead() time.Duration { return time.Until(c.Now()) }

// Check returns a [*DifferError] if the clocks differ by more than MaxDifference.
func (c *Clock) Check() error {
	if ahead := c.Ahead(); ahead.Abs() > MaxDifference {
		return &DifferError{ahead}
	}
	return nil
}

// Measure reads the clock of the database with ask and stores the reading. It ignores an answer
// that took longer than maxRoundTrip, except the first answer and an answer which shows that the
// clock of the database was set.
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
