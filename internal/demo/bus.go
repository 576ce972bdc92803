package demo

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/badged/badged/pubsub"
)

// Bus is a bus whose link can be cut for a while, for the page to show what
// then happens: updates are lost, as with a Redis that is away, and
// reconciliation repairs what the clients see.
type Bus struct {
	pubsub.Bus
	// until is when the link is whole again, in nanoseconds since 1970.
	until atomic.Int64
	lost  atomic.Int64
}

// NewBus puts a link that can be cut in front of a bus.
func NewBus(b pubsub.Bus) *Bus { return &Bus{Bus: b} }

// Publish implements pubsub.Bus. While the link is cut it loses the updates.
func (b *Bus) Publish(ctx context.Context, updates []pubsub.Update) error {
	if b.remaining() > 0 {
		b.lost.Add(int64(len(updates)))
		return nil
	}
	return b.Bus.Publish(ctx, updates)
}

// cut cuts the link from now on for d; 0 makes it whole.
func (b *Bus) cut(d time.Duration) { b.until.Store(time.Now().Add(d).UnixNano()) }

// remaining returns for how long the link stays cut.
func (b *Bus) remaining() time.Duration {
	return max(0, time.Until(time.Unix(0, b.until.Load())))
}
