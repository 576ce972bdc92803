package demo

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/badged/badged/pubsub"
)

// Bus is a bus that can be cut for a while, to show on the page what happens:
// updates are lost, as with an outage of Redis, and reconciliation corrects
// the clients.
type Bus struct {
	pubsub.Bus
	// until is when the cut ends, in nanoseconds since 1970.
	until atomic.Int64
	lost  atomic.Int64
}

// NewBus returns a bus that can be cut, in front of b.
func NewBus(b pubsub.Bus) *Bus { return &Bus{Bus: b} }

// Publish implements pubsub.Bus. While the bus is cut it drops the updates.
func (b *Bus) Publish(ctx context.Context, updates []pubsub.Update) error {
	if b.remaining() > 0 {
		b.lost.Add(int64(len(updates)))
		return nil
	}
	return b.Bus.Publish(ctx, updates)
}

// PublishRooms implements pubsub.Bus as Publish does.
func (b *Bus) PublishRooms(ctx context.Context, updates []pubsub.RoomUpdate) error {
	if b.remaining() > 0 {
		b.lost.Add(int64(len(updates)))
		return nil
	}
	return b.Bus.PublishRooms(ctx, updates)
}

// cut cuts the bus for d from now; 0 ends the cut.
func (b *Bus) cut(d time.Duration) { b.until.Store(time.Now().Add(d).UnixNano()) }

// remaining returns how long the bus stays cut.
func (b *Bus) remaining() time.Duration {
	return max(0, time.Until(time.Unix(0, b.until.Load())))
}
