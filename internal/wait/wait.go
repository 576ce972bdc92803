// Package wait waits: for a time, again and again, or longer after each failure.
//
// It does not know what is waited for.
package wait

import (
	"context"
	"time"
)

// For waits for a time. It returns the cause of the end of ctx if that comes first.
func For(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Every calls do after each interval until ctx is done, and then returns nil.
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

// Repeat is like Every, but the first call is at once.
func Repeat(ctx context.Context, interval time.Duration, do func(ctx context.Context)) error {
	do(ctx)
	return Every(ctx, interval, do)
}

// Backoff are pauses from First on, each twice as long as the one before, up to Last.
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

// Reset makes the next pause the first.
func (b *Backoff) Reset() { b.next = 0 }

// Retry calls do until ctx is done, with a pause after each end of it. A call that lasts
// longer than the longest pause makes the next pause the first. failed is told of each end,
// and of the pause that follows.
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
