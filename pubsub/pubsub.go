// Package pubsub carries updates from the projector, which makes them, to the
// gateways, whose clients wait for them.
//
// A bus may lose anything at any time and says so where it knows (see
// [Handler].HandleGap). That is harmless: every number lives in Postgres, an
// update is absolute, and gateways compare versions with the tables from time
// to time. A bus is never asked what a number is.
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
	// user, in the order of the slice, and does not wait for them to handle it.
	// Two Publish calls that follow one another keep their order. Both hold
	// for the updates of one partition; those of two may overtake one another.
	//
	// The caller may use the slice again after the call, but must not change
	// what its updates refer to. An error means that some updates may not have
	// been sent.
	Publish(ctx context.Context, updates []Update) error

	// Heard reports whether an update of a user, published now, could reach
	// anybody: one that could not need not be made. It is true of everybody who
	// was joined by a Join that has returned, and may be true of others: a bus
	// that does not know says so of all. It does not block.
	Heard(u User) bool

	// Subscribe opens a subscription that has joined nobody yet. Its handler
	// is called from one goroutine at a time until Close returns.
	Subscribe(h Handler) (Subscription, error)

	// Wake tells every projector that listens, in every process, that
	// partitions have new events. It is an economy only: a projector also
	// polls, so an error or a lost call costs milliseconds, never an event.
	Wake(ctx context.Context, partitions []int) error

	// Wakes calls wake for every partition of every Wake, in no set order,
	// and blocks until ctx is done; it then returns nil. Wakes of a partition
	// in quick succession may be told as one, by a call that starts after the
	// last of them. wake is called from one goroutine at a time, not after
	// Wakes has returned, and must not block. An implementation outlives the
	// loss of its connection.
	Wakes(ctx context.Context, wake func(partition int)) error

	// Close ends every subscription and releases what the bus holds. It is
	// idempotent, and must not be called from a handler.
	Close() error
}

// Subscription is one gateway's interest in users. It is safe for concurrent
// use.
type Subscription interface {
	// Join asks for the updates of users and returns once the bus has
	// acknowledged: every update published after Join returned nil reaches the
	// handler, unless the bus loses it. Joining a user again is harmless, and
	// one Leave ends it however often the user was joined.
	//
	// A bus that is away makes Join wait until ctx is done. After such an error
	// the interest is kept all the same: the users that are not left meanwhile
	// are joined as soon as the bus can, which HandleGap then tells.
	Join(ctx context.Context, users ...User) error

	// Leave ends the interest in users. It does not wait for the bus, and works
	// while the bus is away. Updates under way may still arrive.
	Leave(ctx context.Context, users ...User) error

	// Close leaves everybody. No call of the handler is under way or follows
	// once it has returned. It is idempotent, and must not be called from the
	// handler.
	Close() error
}

// User addresses a user on a bus.
type User struct {
	ID string
	// Partition is the partition of the user, by which a bus may route.
	Partition int
}

// Handler takes what a subscription receives. Its methods must not block: a
// slow handler delays the updates of everybody on the subscription.
type Handler interface {
	// HandleUpdate takes an update of a user that was joined. The update and
	// what it refers to are shared: they must not be changed.
	HandleUpdate(u *Update)

	// HandleGap says that the bus was away: any update of any joined user may
	// have been lost up to now. Updates that follow are received again.
	HandleGap()
}
