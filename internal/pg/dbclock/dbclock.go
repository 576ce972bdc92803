// Package dbclock estimates the time of a database from occasional readings of its clock. Times
// in the tables come from the clock of the database, since the clocks of machines differ, and
// since an operator may set them.
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
	// MaxDifference is the largest permitted difference between the clocks of a process and of a
	// database. If the clocks differ more, one of them is wrong, and badged cannot know which; so
	// badged does nothing irreversible.
	MaxDifference = time.Minute
	// maxRoundTrip is the longest round trip of a reading that may replace an earlier reading.
	// The error of a reading is at most half of its round trip.
	maxRoundTrip = 250 * time.Millisecond
)

// DifferError means that the clocks of this process and of a database differ by more than
// MaxDifference.
type DifferError struct {
	// Ahead is the time of the database minus the time of the process.
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

// reading is one reading of the database's clock. server is the time of the database. local is the
// time of this process at the same moment; it includes the monotonic time.
type reading struct{ server, local time.Time }

// Clock computes the time of a database: the last reading, plus the monotonic time since that
// reading. So the result does not change when the clock of this machine is set. Before the first
// reading, Clock returns the time of this machine. The zero value is ready to use. It is safe for
// concurrent use.
type Clock struct{ last atomic.Pointer[reading] }

// Set stores a reading: now is the time that the database has just returned.
func (c *Clock) Set(now time.Time) { c.last.Store(&reading{now, time.Now()}) }

// Now returns the time of the database, truncated to microseconds, which Postgres stores.
func (c *Clock) Now() time.Time {
	r := c.last.Load()
	if r == nil {
		return time.Now().Truncate(time.Microsecond)
	}
	return r.server.Add(time.Since(r.local)).Truncate(time.Microsecond)
}

// Middle returns the median of the times of databases, so that one wrong clock among three has no
// effect. Middle ignores clocks that were never read. If an even number of clocks is left, or
// none, Middle adds the clock of this machine.
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

// Ahead returns the time of the database minus the time on the clock of this machine.
func (c *Clock) Ahead() time.Duration { return time.Until(c.Now()) }

// Check returns a [*DifferError] if the clocks of the database and of this machine differ by more
// than MaxDifference.
func (c *Clock) Check() error {
	if ahead := c.Ahead(); ahead.Abs() > MaxDifference {
		return &DifferError{ahead}
	}
	return nil
}

// Measure calls the function ask, which returns the time of the database, and stores the reading.
// If ask took longer than maxRoundTrip, Measure discards the reading, with two exceptions: it is
// the first reading, or it differs from the expected time by more than the round trip, so that one
// of the clocks was set.
func (c *Clock) Measure(ctx context.Context, ask func(context.Context) (time.Time, error)) error {
	asked := time.Now()
	there, err := ask(ctx)
	if err != nil {
		return err
	}
	took := time.Since(asked)
	read := &reading{there, asked.Add(took / 2)}
	if last := c.last.Load(); last == nil || took <= maxRoundTrip || read.server.Sub(last.server.Add(read.local.Sub(last.local))).Abs() > took {
		c.last.Store(read)
	}
	return nil
}
