package dbclock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/badged/badged/internal/dbclock"
)

// server is a database whose clock is ahead, and that may be away.
type server struct {
	ahead time.Duration
	err   error
}

func (s *server) read(context.Context) (time.Time, error) {
	return time.Now().Add(s.ahead).Round(0), s.err
}

// about reports whether durations differ by what a busy machine may take.
func about(a, b time.Duration) bool { return (a - b).Abs() < 10*time.Second }

// A clock follows the database, also if that is set, and else the time since the last
// reading.
func TestClockFollowsTheDatabase(t *testing.T) {
	var c dbclock.Clock
	if ahead := c.Ahead(); !about(ahead, 0) || c.Check() != nil {
		t.Errorf("before a reading it is %s ahead, %v", ahead, c.Check())
	}
	s := &server{}
	for _, ahead := range []time.Duration{time.Hour, -30 * 24 * time.Hour, 30 * time.Second, 0} {
		s.ahead = ahead
		if err := c.Measure(t.Context(), s.read); err != nil {
			t.Fatal(err)
		}
		if got := c.Ahead(); !about(got, ahead) {
			t.Errorf("it is %s ahead, want %s", got, ahead)
		}
		var differ *dbclock.DifferError
		if got, want := errors.As(c.Check(), &differ), ahead.Abs() > dbclock.MaxDifference; got != want {
			t.Errorf("with %s ahead it says %v", ahead, c.Check())
		}
	}
	s.ahead, s.err = time.Hour, errors.New("away")
	if err := c.Measure(t.Context(), s.read); !errors.Is(err, s.err) {
		t.Errorf("of a database that is away it says %v", err)
	}
	if got := c.Ahead(); !about(got, 0) {
		t.Errorf("after a failed reading it is %s ahead", got)
	}
	if now := c.Now(); now.Nanosecond()%1000 != 0 {
		t.Errorf("%s has parts of microseconds, which Postgres cannot store", now)
	}
}

// The error says which clock is ahead.
func TestDifference(t *testing.T) {
	for ahead, want := range map[time.Duration]string{
		time.Hour:  "the clock of the database is 1h0m0s ahead of this machine's, and it is not known which is right: set the clocks, such as with NTP",
		-time.Hour: "the clock of the database is 1h0m0s behind this machine's, and it is not known which is right: set the clocks, such as with NTP",
	} {
		if got := (&dbclock.DifferError{Ahead: ahead}).Error(); got != want {
			t.Errorf("with %s ahead it says %q, want %q", ahead, got, want)
		}
	}
}
