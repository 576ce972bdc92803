// Package pubsub carries updates from projectors to gateways.
//
// A bus may lose any update. It reports every loss that it detects (see [Handler].HandleGap). A
// loss delays numbers but does not make them wrong permanently: the numbers are stored in
// Postgres, each update has the whole new state of everything that changed, and gateways
// regularly compare the versions of clients with the tables.
//
// [Memory] serves a single process, [Redis] several. To write another bus, implement [Bus] and
// run pubsubtest.Run on it.
//
// The package does not know events, tables or frames, since projectors and gateways both import
// it. ADR 4 explains the content of an update.
package pubsub

import (
	"context"
	"errors"
)

// ErrClosed is returned by every call on a bus or subscription that is closed.
var ErrClosed = errors.New("pubsub: closed")

// Bus delivers updates to subscriptions, and wakes projectors. It is safe for concurrent use.
type Bus interface {
	// Publish sends each update to the subscriptions that have joined its user or room. It does
	// not wait for their handlers. Updates of one partition arrive in the order of the calls.
	// Within a call, updates of users arrive before updates of rooms, and otherwise in the
	// order of the slices. The order of updates of different partitions is not defined.
	//
	// The caller may reuse the slices after the call, but must not change the maps and slices
	// inside the updates. If Publish returns an error, some updates may not have been sent. If
	// Publish could not send the update of a user, it has not sent any update of a room: a
	// member who gets an update of a room without the preceding update of the user would
	// compute wrong numbers.
	Publish(ctx context.Context, users []Update, rooms []RoomUpdate) error

	// HasSubscribers reports whether an update of the user or room with the address `a` could
	// reach a handler if it were published now. If the result is false, the projector does not
	// compute the update. While a subscription has joined the address, the result must be true. A
	// bus that does not know the subscribers of other processes always returns true.
	// HasSubscribers does not block.
	HasSubscribers(a Address) bool

	// Subscribe opens a subscription that has joined no address yet. The bus calls the handler
	// from one goroutine at a time, until Close of the subscription returns.
	Subscribe(h Handler) (Subscription, error)

	// Wake notifies every Wakes call, in every process, that partitions have new events. A wake
	// only reduces latency: projectors also poll, so a lost wake delays events by milliseconds.
	Wake(ctx context.Context, partitions []int) error

	// Wakes calls the function `wake` for each partition that a Wake call names, in any order. It
	// blocks until ctx is done and then returns nil. If its connection is lost, it reconnects.
	// Several Wake calls for a partition in quick succession may cause only one call of `wake`,
	// which then starts after the last Wake call. `wake` is called from one goroutine at a time,
	// and is not called after Wakes has returned. It must not block.
	Wakes(ctx context.Context, wake func(partition int)) error

	// Close closes every subscription and releases all resources. It is idempotent, and must
	// not be called from a handler.
	Close() error
}

// Subscription is the set of users and rooms whose updates one gateway receives. It is safe
// for concurrent use.
type Subscription interface {
	// Join subscribes to the updates of users and rooms, and returns when the bus has
	// acknowledged the subscription. Every update that is published after Join has returned nil
	// reaches the handler, unless the bus loses the update. Join is idempotent: one Leave undoes
	// any number of Joins.
	//
	// While the bus is down, Join blocks until ctx is done and then returns an error. The bus
	// stores the addresses: when it works again, it joins them and then calls HandleGap. A
	// Leave of an address cancels its later join.
	Join(ctx context.Context, addresses ...Address) error

	// Leave unsubscribes from users and rooms. It does not wait for the bus, and works while
	// the bus is down. Updates in flight may still arrive.
	Leave(ctx context.Context, addresses ...Address) error

	// Close leaves all addresses. After Close has returned, the handler is not called any more.
	// Close is idempotent, and must not be called from the handler.
	Close() error
}

// Address names a user, or a room in one partition: updates are published to an address.
type Address struct {
	ID string
	// Partition is the partition of the updates. A bus may use it to choose the route of updates.
	Partition int
	// Room is true if ID is the conversation of a room, not a user.
	Room bool
}

// Handler receives the updates of a subscription. Its methods must not block: a slow handler
// delays all updates of the subscription.
type Handler interface {
	// HandleUpdate receives an update of a joined user. The bus passes the same update to
	// several handlers: do not modify it.
	HandleUpdate(u *Update)

	// HandleRoom receives an update of a joined room. The bus passes the same update to several
	// handlers: do not modify it.
	HandleRoom(u *RoomUpdate)

	// HandleGap reports that the bus may have lost updates of any joined address, if they were
	// published before this call. Updates that are published later arrive as usual.
	HandleGap()
}

// update is an [Update] or a [RoomUpdate].
type update interface {
	Address() Address
	deliver(h Handler)
}

// updateOf is a type constraint: a pointer to U must implement update.
type updateOf[U any] interface {
	*U
	update
}
