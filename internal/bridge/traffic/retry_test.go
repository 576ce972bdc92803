package traffic

import (
	"context"
	"errors"
	"slices"
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

func TestRetry(t *testing.T) {
	const ms = time.Millisecond
	doubled := []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms}
	down := &TransientError{Err: errDown}
	outage := []string{"down: trying again for up to 1m0s", "going on"}
	for _, tt := range []struct {
		name   string
		fails  int
		err    error
		before func(c *testClock, r *Retrier)
		want   string // the error
		waits  []time.Duration
		notes  []string
	}{
		{"it backs off", 8, down, nil, "", append(slices.Clone(doubled), 5000*ms, 5000*ms), outage},
		{"it waits as long as asked", 2, &TransientError{Err: errDown, After: 7 * time.Second}, nil, "", []time.Duration{7 * time.Second, 7 * time.Second}, outage},
		{"it polls until events are folded, which is no outage", 3, ErrNotFolded, nil, "", []time.Duration{foldPoll, foldPoll, foldPoll}, nil},
		{"it gives up without progress", 1000, down, nil, "gave up after 1m0s without progress: down", slices.Concat(doubled, slices.Repeat([]time.Duration{5000 * ms}, 10), []time.Duration{3700 * ms}), outage[:1]},
		{"idle time does not count", 3, down, func(c *testClock, r *Retrier) { r.succeeded(); c.pass(time.Hour) }, "", doubled[:3], outage},
		{"it stops at an error that does not pass", 1, errDown, nil, "down", nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clock := newTestClock()
			r, notes := newTestRetrier(clock)
			if tt.before != nil {
				tt.before(clock, r)
			}
			err := r.Do(t.Context(), failTimes(tt.fails, tt.err))
			if tt.want == "" && err != nil || tt.want != "" && (!errors.Is(err, errDown) || err.Error() != tt.want) {
				t.Errorf("error is %v, want %q", err, tt.want)
			}
			if diff := cmp.Diff(tt.waits, clock.slept); diff != "" {
				t.Errorf("waits (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.notes, *notes); diff != "" {
				t.Errorf("notes (-want +got):\n%s", diff)
			}
		})
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

func TestRetryEndsWithItsContext(t *testing.T) {
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
