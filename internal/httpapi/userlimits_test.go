package httpapi

import (
	"strconv"
	"testing"
	"time"
)

func TestUserLimits(t *testing.T) {
	l := newUserLimits()
	now := time.Date(2026, 11, 2, 10, 0, 0, 0, time.UTC)
	take := func(userID string, times int) (wait time.Duration) {
		for range times {
			wait = l.take(userID, now)
		}
		return wait
	}
	if wait := take("ada", userBurst); wait != 0 {
		t.Errorf("the burst has to wait for %v", wait)
	}
	if wait := take("ada", 3); wait != time.Second {
		t.Errorf("one more has to wait for %v", wait)
	}
	if wait := take("ben", 1); wait != 0 {
		t.Errorf("another user has to wait for %v", wait)
	}
	// A user is remembered until the limiter is full.
	now = now.Add(userFills - time.Second)
	take("ben", 1)
	if wait := take("ada", userBurst); wait == 0 {
		t.Error("the limiter was forgotten too early")
	}
	now = now.Add(time.Second)
	take("ben", 1)
	if wait := take("ada", 2); wait == 0 {
		t.Error("the limiter was forgotten when the maps turned")
	}
	now = now.Add(2 * userFills)
	take("cem", 1)
	if n := len(l.current) + len(l.previous); n != 1 {
		t.Errorf("%d idle users are remembered, want 1", n)
	}
}

func TestUserLimitsAreBounded(t *testing.T) {
	l := newUserLimits()
	now := time.Now()
	for i := range 3 * maxUsers {
		l.take(strconv.Itoa(i), now)
		if n := len(l.current) + len(l.previous); n > 2*maxUsers {
			t.Fatalf("%d users are remembered", n)
		}
	}
}
