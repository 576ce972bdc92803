package backpressure

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/fold/lag"
)

// newTestThrottle returns a throttle of four partitions, which tests measure by hand.
func newTestThrottle(t *testing.T, maxLag time.Duration) *Throttle {
	t.Helper()
	th, err := New(Config{
		Database: (*pgxpool.Pool)(nil), Layouts: events.NewLayout(4, nil), MaxLag: maxLag,
	})
	if err != nil {
		t.Fatal(err)
	}
	return th
}

// forUsers returns an event for users whose names say their partitions: those with an a are
// in the first.
func forUsers(names ...string) []events.Event {
	var users []string
	for _, name := range names {
		for i := 0; ; i++ {
			user := fmt.Sprint(name, i)
			if events.PartitionOf(user, 4) == int(name[0]-'a') {
				users = append(users, user)
				break
			}
		}
	}
	return []events.Event{{Data: events.Data{UserIDs: users}}}
}

// measured sets a measurement: the position, and the lag of each partition.
func measured(th *Throttle, position int64, lags ...time.Duration) {
	waiting := map[int]lag.Waiting{}
	for i, age := range lags {
		waiting[i] = lag.Waiting{Age: age, Folded: events.Position{Offset: position}}
	}
	th.update(waiting, time.Now())
}

func admit(t *testing.T, th *Throttle, bytes int, users ...string) error {
	t.Helper()
	ticket, err := th.Enter(t.Context(), bytes)
	if err != nil {
		t.Fatal(err)
	}
	defer ticket.Leave()
	return ticket.Admit(t.Context(), forUsers(users...))
}

func TestRefusesPartitionsThatAreTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := newTestThrottle(t, 30*time.Second)
		measured(th, 1, 40*time.Second, time.Second)
		time.Sleep(progressWindow) // and its position does not move: waiting would not help
		if err := admit(t, th, 1, "ada"); err != nil {
			t.Errorf("after one measurement: %v", err)
		}
		measured(th, 1, 41*time.Second, time.Second)
		var behind *BehindError
		if err := admit(t, th, 1, "ada"); !errors.As(err, &behind) || behind.Lag != 41*time.Second || behind.RetryAfter < time.Second {
			t.Errorf("after two: %v", err)
		}
		if err := admit(t, th, 1, "ben", "ada"); !errors.As(err, &behind) {
			t.Errorf("with another user: %v", err)
		}
		if err := admit(t, th, 1, "ben"); err != nil {
			t.Errorf("for a partition that is not late: %v", err)
		}
		measured(th, 2, 0, 0)
		if err := admit(t, th, 1, "ada"); err != nil {
			t.Errorf("once folded: %v", err)
		}
	})
}

func TestNoLimitRefusesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := newTestThrottle(t, 0)
		for range 3 {
			measured(th, 1, time.Hour)
		}
		time.Sleep(progressWindow)
		if err := admit(t, th, 1, "ada"); err != nil {
			t.Error(err)
		}
	})
}

// A publisher gives up its slot and waits while the position moves, but not
// longer than needed.
func TestWaitsForFolding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := newTestThrottle(t, 30*time.Second)
		measured(th, 1, 3*time.Second)
		began := time.Now()
		admitted := make(chan error, cap(th.slots)+1)
		for range cap(th.slots) + 1 {
			go func() { admitted <- admit(t, th, SmallBody+1, "ada") }()
		}
		synctest.Wait()
		if len(th.slots) != 0 || len(admitted) != 0 {
			t.Errorf("%d slots are taken, %d are admitted", len(th.slots), len(admitted))
		}
		if err := admit(t, th, SmallBody+1, "ben"); err != nil || time.Since(began) != 0 {
			t.Errorf("another partition: %v after %s", err, time.Since(began))
		}
		time.Sleep(time.Second)
		measured(th, 2, time.Second)
		for range cap(th.slots) + 1 {
			if err := <-admitted; err != nil {
				t.Error(err)
			}
		}
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("waited for %s", waited)
		}

		measured(th, 3, 3*time.Second) // the last measurement
		if err := admit(t, th, 1, "ada"); err != nil || time.Since(began) != time.Second+maxDelay {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

func TestRetryAfter(t *testing.T) {
	for excess, want := range map[time.Duration][2]time.Duration{
		0:                {time.Second, 2 * time.Second},
		10 * time.Second: {5 * time.Second, 16 * time.Second},
		time.Hour:        {15 * time.Second, 46 * time.Second},
	} {
		for range 100 {
			if got := retryAfter(excess); got < want[0] || got > want[1] {
				t.Fatalf("%s too late: %s, want %s to %s", excess, got, want[0], want[1])
			}
		}
	}
}
