package dbclock_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/badged/badged/internal/pg/dbclock"
)

// server is a database whose clock is ahead of the process's, and that may be unreachable.
type server struct {
	ahead time.Duration
	err   error
}

func (s *server) read(context.Context) (time.Time, error) {
	return time.Now().Add(s.ahead).Round(0), s.err
}

// about reports whether durations differ by no more than a busy machine may delay a step.
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

// One wrong clock of three has no effect, be it the clock of this machine or of a database.
func TestMiddle(t *testing.T) {
	for _, tt := range []struct {
		name  string
		ahead []time.Duration
		want  time.Duration
	}{
		{"no database", nil, 0},
		{"a database", []time.Duration{time.Hour}, time.Hour},
		{"databases that agree", []time.Duration{time.Hour, time.Hour}, time.Hour},
		{"a database that is ahead", []time.Duration{0, 30 * 24 * time.Hour}, 0},
		{"a database that is behind", []time.Duration{-30 * 24 * time.Hour, 0}, 0},
		{"one of three databases", []time.Duration{-time.Hour, 30 * 24 * time.Hour, -time.Hour}, -time.Hour},
	} {
		clocks := []*dbclock.Clock{{}} // the first clock was never read
		for _, ahead := range tt.ahead {
			c := &dbclock.Clock{}
			c.Set(time.Now().Add(ahead))
			clocks = append(clocks, c)
		}
		if got := time.Until(dbclock.Middle(slices.Values(clocks))); !about(got, tt.want) {
			t.Errorf("%s: it is %s ahead, want %s", tt.name, got, tt.want)
		}
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
