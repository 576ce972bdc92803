// Package wait pauses goroutines: for a duration, at intervals, or with growing pauses after
// failures.
//
// The package does not know what its callers wait for.
package wait

import (
	"context"
	"time"
)

// For waits for a duration and returns nil. If ctx ends first, For returns the cause of that end.
func For(ctx context.Context, d time.Duration) error {
	_, err := Signal[any](ctx, nil, d)
	return err
}

// Signal waits, at most for the duration d, until signal has a value or is closed. came reports
// whether this has happened. If ctx ends first, Signal returns the cause of that end.
func Signal[T any](ctx context.Context, signal <-chan T, d time.Duration) (came bool, err error) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-signal:
		return true, nil
	case <-timer.C:
		return false, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// Wake puts a value into signal, a channel of capacity 1, unless the channel already has a value.
func Wake(signal chan<- struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}

// Every calls do after each interval, until ctx is done. Then it returns nil.
func Every(ctx context.Context, interval time.Duration, do func(ctx context.Context)) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			do(ctx)
		}
	}
}

// Repeat is like Every, but makes the first call of do immediately.
func Repeat(ctx context.Context, interval time.Duration, do func(ctx context.Context)) error {
	do(ctx)
	return Every(ctx, interval, do)
}

// Backoff computes growing pauses. The first pause is First, and each further pause is twice as
// long as the one before, but not longer than Last.
type Backoff struct {
	First, Last time.Duration
	next        time.Duration
}

// Next returns the next pause.
func (b *Backoff) Next() time.Duration {
	pause := max(b.First, b.next)
	b.next = min(2*pause, b.Last)
	return pause
}

// Reset makes the next pause First again.
func (b *Backoff) Reset() { b.next = 0 }

// Retry calls do repeatedly until ctx is done, with a pause after each call. If a call has lasted
// longer than Last, the pauses begin with First again. After each call, Retry calls the function
// failed with the error of do and the pause that follows.
func (b Backoff) Retry(ctx context.Context, do func(ctx context.Context) error, failed func(err error, pause time.Duration)) {
	for ctx.Err() == nil {
		began := time.Now()
		err := do(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > b.Last {
			b.Reset()
		}
		pause := b.Next()
		failed(err, pause)
		_ = For(ctx, pause)
	}
}
