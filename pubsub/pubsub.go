// Package pubsub carries updates from projectors to gateways.
//
// A bus may lose any update, and reports a loss that it notices (see
// [Handler].HandleGap). Losses are harmless: the numbers live in Postgres, each
// update is absolute, and gateways regularly compare versions with the tables.
// No number is ever read from a bus.
//
// [Memory] serves a single process, [Redis] several. To write your own, implement
// [Bus] and run pubsubtest.Run on it.
//
// It does not know events, tables or frames: both sides import it. ADR 4 says what an
// update has to carry.
package pubsub

import (
	"context"
	"errors"
)

// ErrClosed is returned by calls on a bus or subscription after its Close.
var ErrClosed = errors.New("pubsub: closed")

// Bus fans updates out to subscriptions, and wakes projectors. It is safe for
// concurrent use.
type Bus interface {
	// Publish sends each update to the subscriptions that have joined its
	// user. It does not wait for their handlers. Updates of one partition keep
	// the order of the slice, and of consecutive calls; updates of different
	// partitions may overtake each other.
	//
	// The caller may reuse the slice after the call, but must not change the
	// maps and slices in its updates. After an error some updates may not have
	// been sent.
	Publish(ctx context.Context, updates []Update) error

	// PublishRooms is Publish for updates of rooms. Both keep one order: updates
	// of a partition that are published after others arrive after them, whether
	// of users or rooms.
	PublishRooms(ctx context.Context, updates []RoomUpdate) error

	// HasSubscribers reports whether an update of a user or room published now
	// could reach a handler; if not, the projector does not make one. It is true
	// from the moment a Join of a returns, and may be true of any other address:
	// a bus that does not know returns true. It does not block.
	HasSubscribers(a Address) bool

	// Subscribe opens a subscription that has joined nothing yet. Its handler
	// is called from one goroutine at a time until Close returns.
	Subscribe(h Handler) (Subscription, error)

	// Wake tells every Wakes call, in every process, that partitions have new
	// events. It only saves time: projectors also poll, so a lost wake delays
	// events by milliseconds.
	Wake(ctx context.Context, partitions []int) error

	// Wakes calls wake for every partition of every Wake, in any order. It
	// blocks until ctx is done and then returns nil; it survives the loss of
	// its connection. Wakes of a partition in quick succession may be merged
	// into one call, which starts after the last of them. wake is called from
	// one goroutine at a time, never after Wakes has returned, and must not
	// block.
	Wakes(ctx context.Context, wake func(partition int)) error

	// Close closes every subscription and releases all resources. It is
	// idempotent, and must not be called from a handler.
	Close() error
}

// Subscription is one gateway's interest in users and rooms. It is safe for
// concurrent use.
type Subscription interface {
	// Join subscribes to the updates of users and rooms and returns once the bus
	// has acknowledged: every update published after Join returned nil reaches
	// the handler, unless the bus loses it. Join is idempotent: one Leave undoes
	// any number of Joins.
	//
	// While the bus is down, Join waits until ctx is done. The addresses stay
	// wanted after that error: the bus joins them when it is back, unless they
	// are left before, and then calls HandleGap.
	Join(ctx context.Context, addresses ...Address) error

	// Leave unsubscribes from users and rooms. It does not wait for the bus, and
	// works while the bus is down. Updates in flight may still arrive.
	Leave(ctx context.Context, addresses ...Address) error

	// Close leaves all addresses. Once it has returned, the handler is not
	// called any more. It is idempotent, and must not be called from the handler.
	Close() error
}

// Address names a user on a bus, or a room in one partition.
type Address struct {
	ID string
	// Partition is that of the updates; a bus may route by it.
	Partition int
	// Room is set if ID is a conversation that is a room, rather than a user.
	Room bool
}

// Handler receives the updates of a subscription. Its methods must not block: a
// slow handler delays all updates of the subscription.
type Handler interface {
	// HandleUpdate receives an update of a joined user. Updates are shared
	// between handlers: do not modify them.
	HandleUpdate(u *Update)

	// HandleRoom is HandleUpdate for an update of a joined room.
	HandleRoom(u *RoomUpdate)

	// HandleGap reports that any update of any joined address up to now may have
	// been lost. Later updates arrive again.
	HandleGap()
}
