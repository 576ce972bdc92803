package wait_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/badged/badged/internal/base/wait"
)

var errEnd = errors.New("the end")

// ending returns a context that ends after a duration.
func ending(t *testing.T, after time.Duration) context.Context {
	ctx, cancel := context.WithTimeoutCause(t.Context(), after, errEnd)
	t.Cleanup(cancel)
	return ctx
}

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ctx := ending(t, 3*time.Second)
		if err := wait.For(ctx, 2*time.Second); err != nil || time.Since(began) != 2*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		if err := wait.For(ctx, 2*time.Second); !errors.Is(err, errEnd) || time.Since(began) != 3*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

func TestIntervals(t *testing.T) {
	for _, tc := range []struct {
		name string
		wait func(context.Context, time.Duration, func(context.Context)) error
		want []time.Duration
	}{
		{"every", wait.Every, []time.Duration{2 * time.Second, 4 * time.Second}},
		{"repeat", wait.Repeat, []time.Duration{0, 2 * time.Second, 4 * time.Second}},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			var at []time.Duration
			if err := tc.wait(ending(t, 5*time.Second), 2*time.Second, func(context.Context) { at = append(at, time.Since(began)) }); err != nil || !slices.Equal(at, tc.want) {
				t.Errorf("%s calls at %v, want %v; %v", tc.name, at, tc.want, err)
			}
		})
	}
}

// The pauses grow, and begin again with the first after a call that lasted long.
func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, pauses := 0, ""
		wait.Backoff{First: time.Second, Last: 4 * time.Second}.Retry(ending(t, 30*time.Second), func(ctx context.Context) error {
			if calls++; calls == 5 {
				return wait.For(ctx, 5*time.Second)
			}
			return errEnd
		}, func(err error, pause time.Duration) { pauses += fmt.Sprintf("%s %t ", pause, errors.Is(err, errEnd)) })
		if want := "1s true 2s true 4s true 4s true 1s false 2s true 4s true 4s true 4s true "; pauses != want {
			t.Errorf("the pauses are %s, want %s", pauses, want)
		}
	})
}
