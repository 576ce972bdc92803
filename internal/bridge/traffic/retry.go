package traffic

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/badged/badged/internal/base/wait"
)

// Bounds of the pause between attempts. The pause doubles after each attempt.
const (
	minRetryDelay = 100 * time.Millisecond
	maxRetryDelay = 5 * time.Second
	// foldPoll is the pause between two checks whether events are folded.
	foldPoll = 50 * time.Millisecond
)

// clock provides the time and sleeps.
type clock interface {
	now() time.Time
	// sleep returns nil after d, or the error of ctx if ctx is done earlier.
	sleep(ctx context.Context, d time.Duration) error
}

type systemClock struct{}

func (systemClock) now() time.Time { return time.Now() }

func (systemClock) sleep(ctx context.Context, d time.Duration) error { return wait.For(ctx, d) }

// Retrier repeats calls that fail temporarily. All calls of a load share a retrier: as long as some
// call succeeds, no call gives up.
type Retrier struct {
	clock clock
	// giveUpAfter is how long to retry without progress.
	giveUpAfter time.Duration
	// note is called with a message for the user when an outage begins or ends.
	note func(string)

	mu       sync.Mutex
	progress time.Time // when a call last succeeded
	outage   bool
}

// NewRetrier returns a retrier that gives up if no call succeeds for a minute. It calls note with a
// message for the user when an outage begins or ends.
func NewRetrier(note func(string)) *Retrier {
	return &Retrier{clock: systemClock{}, giveUpAfter: defaultGiveUpAfter, note: note}
}

// Do calls f until f succeeds or fails permanently, until ctx is done, or until no call of the
// retrier has succeeded for giveUpAfter.
func (r *Retrier) Do(ctx context.Context, f func(context.Context) error) error {
	began := r.clock.now() // only the time since this call began counts as time without progress
	for delay := minRetryDelay; ; delay = min(2*delay, maxRetryDelay) {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := f(ctx)
		if err == nil {
			r.succeeded()
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
		wait, ok := r.waitAfter(err, delay)
		if !ok {
			return err
		}
		left := r.giveUpAfter - r.stuckFor(began)
		if left <= 0 {
			return fmt.Errorf("gave up after %s without progress: %w", r.giveUpAfter, err)
		}
		if err := r.clock.sleep(ctx, min(wait, left)); err != nil {
			return err
		}
	}
}

// waitAfter returns the pause before the next attempt. ok is false if the error is permanent.
func (r *Retrier) waitAfter(err error, delay time.Duration) (wait time.Duration, ok bool) {
	if errors.Is(err, ErrNotFolded) {
		return foldPoll, true
	}
	var transient *TransientError
	if !errors.As(err, &transient) {
		return 0, false
	}
	r.failed(err)
	return max(delay, transient.After), true
}

func (r *Retrier) stuckFor(began time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	since := began
	if r.progress.After(since) {
		since = r.progress
	}
	return r.clock.now().Sub(since)
}

func (r *Retrier) succeeded() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.progress = r.clock.now()
	if r.outage {
		r.outage = false
		r.note("going on")
	}
}

func (r *Retrier) failed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.outage {
		r.outage = true
		r.note(fmt.Sprintf("%v: trying again for up to %s", err, r.giveUpAfter))
	}
}
