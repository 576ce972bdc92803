package traffic

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var errDown = errors.New("down")

func newTestRetrier(clock clock) (*Retrier, *[]string) {
	var notes []string
	return &Retrier{clock: clock, giveUpAfter: time.Minute, note: func(s string) { notes = append(notes, s) }}, &notes
}

// failTimes returns a call that fails n times.
func failTimes(n int, err error) func(context.Context) error {
	return func(context.Context) error {
		if n--; n < 0 {
			return nil
		}
		return err
	}
}

func TestRetryBacksOff(t *testing.T) {
	clock := newTestClock()
	r, notes := newTestRetrier(clock)
	if err := r.Do(t.Context(), failTimes(8, &TransientError{Err: errDown})); err != nil {
		t.Fatal(err)
	}
	const ms = time.Millisecond
	want := []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 5000 * ms, 5000 * ms}
	if diff := cmp.Diff(want, clock.slept); diff != "" {
		t.Errorf("waits (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"down: trying again for up to 1m0s", "going on"}, *notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
}

func TestRetryWaitsAsLongAsAsked(t *testing.T) {
	clock := newTestClock()
	r, _ := newTestRetrier(clock)
	if err := r.Do(t.Context(), failTimes(2, &TransientError{Err: errDown, After: 7 * time.Second})); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]time.Duration{7 * time.Second, 7 * time.Second}, clock.slept); diff != "" {
		t.Errorf("waits (-want +got):\n%s", diff)
	}
}

func TestRetryPollsUntilFolded(t *testing.T) {
	clock := newTestClock()
	r, notes := newTestRetrier(clock)
	if err := r.Do(t.Context(), failTimes(3, ErrNotFolded)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]time.Duration{foldPoll, foldPoll, foldPoll}, clock.slept); diff != "" {
		t.Errorf("waits (-want +got):\n%s", diff)
	}
	if len(*notes) > 0 {
		t.Errorf("it is no outage, but the user read %q", *notes)
	}
}

func TestRetryGivesUpWithoutProgress(t *testing.T) {
	clock := newTestClock()
	r, _ := newTestRetrier(clock)
	err := r.Do(t.Context(), failTimes(1000, &TransientError{Err: errDown}))
	if !errors.Is(err, errDown) || err.Error() != "gave up after 1m0s without progress: down" {
		t.Errorf("error is %v", err)
	}
	var waited time.Duration
	for _, d := range clock.slept {
		waited += d
	}
	if waited != time.Minute {
		t.Errorf("it took %s", waited)
	}
}

func TestRetryGoesOnWhileAnotherCallSucceeds(t *testing.T) {
	clock := newTestClock()
	r, _ := newTestRetrier(clock)
	clock.onSleep = func() { r.succeeded() }
	if err := r.Do(t.Context(), failTimes(100, &TransientError{Err: errDown})); err != nil {
		t.Error(err)
	}
}

func TestRetryDoesNotCountIdleTime(t *testing.T) {
	clock := newTestClock()
	r, _ := newTestRetrier(clock)
	r.succeeded()
	clock.pass(time.Hour)
	if err := r.Do(t.Context(), failTimes(3, &TransientError{Err: errDown})); err != nil {
		t.Error(err)
	}
}

func TestRetryStops(t *testing.T) {
	t.Run("at an error that does not pass", func(t *testing.T) {
		clock := newTestClock()
		r, _ := newTestRetrier(clock)
		if err := r.Do(t.Context(), failTimes(1, errDown)); !errors.Is(err, errDown) || len(clock.slept) > 0 {
			t.Errorf("error is %v after %d waits", err, len(clock.slept))
		}
	})
	t.Run("when the context ends during a wait", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		clock := newTestClock()
		clock.onSleep = cancel
		r, _ := newTestRetrier(clock)
		err := r.Do(ctx, failTimes(1000, &TransientError{Err: errDown}))
		if !errors.Is(err, context.Canceled) || len(clock.slept) != 1 {
			t.Errorf("error is %v after %d waits", err, len(clock.slept))
		}
	})
	t.Run("before the first attempt if the context has ended", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r, _ := newTestRetrier(newTestClock())
		err := r.Do(ctx, func(context.Context) error { t.Error("called"); return nil })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error is %v", err)
		}
	})
}

func TestSystemClockSleep(t *testing.T) {
	if err := (systemClock{}).sleep(t.Context(), time.Nanosecond); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (systemClock{}).sleep(ctx, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
}
