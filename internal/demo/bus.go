package demo

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/badged/badged/pubsub"
)

// Bus is a bus that the page can cut for some time. While it is cut, it loses updates, like Redis
// in an outage, so that the page can show how reconciliation corrects the clients.
type Bus struct {
	pubsub.Bus
	// until is the time when the cut ends, in nanoseconds since 1970.
	until atomic.Int64
	lost  atomic.Int64
}

// NewBus wraps b in a bus that can be cut.
func NewBus(b pubsub.Bus) *Bus { return &Bus{Bus: b} }

// Publish implements pubsub.Bus. It drops the updates while the bus is cut.
func (b *Bus) Publish(ctx context.Context, users []pubsub.Update, rooms []pubsub.RoomUpdate) error {
	if b.remaining() > 0 {
		b.lost.Add(int64(len(users) + len(rooms)))
		return nil
	}
	return b.Bus.Publish(ctx, users, rooms)
}

// cut cuts the bus for the duration d from now; 0 ends a cut.
func (b *Bus) cut(d time.Duration) { b.until.Store(time.Now().Add(d).UnixNano()) }

// remaining returns how much longer the bus is cut, 0 if it is not cut.
func (b *Bus) remaining() time.Duration {
	return max(0, time.Until(time.Unix(0, b.until.Load())))
}
