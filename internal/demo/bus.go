package demo

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/badged/badged/pubsub"
)

// Bus is a bus that the page can cut for a while, to show the effects: updates are lost, as in
// an outage of Redis, and reconciliation corrects the clients.
type Bus struct {
	pubsub.Bus
	// until is the end of the cut, in nanoseconds since 1970.
	until atomic.Int64
	lost  atomic.Int64
}

// NewBus wraps b in a bus that can be cut.
func NewBus(b pubsub.Bus) *Bus { return &Bus{Bus: b} }

// Publish implements pubsub.Bus. While the bus is cut it drops the updates.
func (b *Bus) Publish(ctx context.Context, users []pubsub.Update, rooms []pubsub.RoomUpdate) error {
	if b.remaining() > 0 {
		b.lost.Add(int64(len(users) + len(rooms)))
		return nil
	}
	return b.Bus.Publish(ctx, users, rooms)
}

// cut cuts the bus for the time d from now; 0 ends a cut.
func (b *Bus) cut(d time.Duration) { b.until.Store(time.Now().Add(d).UnixNano()) }

// remaining returns the remaining time of the cut.
func (b *Bus) remaining() time.Duration {
	return max(0, time.Until(time.Unix(0, b.until.Load())))
}
