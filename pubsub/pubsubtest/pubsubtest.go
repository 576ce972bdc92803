// Package pubsubtest checks that an implementation of [pubsub.Bus] fulfils its contract. It
// also has a handler, [Recorder], for tests that receive updates from a bus.
//
// It does not know any implementation.
package pubsubtest

import (
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"github.com/badged/badged/pubsub"
)

// Run runs the suite. Each test makes its own bus with newBus, and closes it. The buses may use
// the same broker, if the broker loses no messages and no other program uses it.
func Run(t *testing.T, newBus func(t *testing.T) pubsub.Bus) {
	t.Helper()
	for _, test := range []struct {
		name string
		run  func(t *testing.T, bus pubsub.Bus)
	}{
		{"an update arrives as it was published", testUpdateIsWhole},
		{"an update of a room arrives as it was published", testRoomIsWhole},
		{"the slice of a publish may be reused", testSliceIsFree},
		{"a room is another address than a user of the same id", testRoomIsNoUser},
		{"updates of users and rooms keep one order", testOrderOfRooms},
		{"any user id is an address", testUserIDs},
		{"updates keep their order", testOrder},
		{"what is published after a join arrives", testJoinBeforePublish},
		{"only updates of joined users arrive", testOnlyJoined},
		{"each subscription has its own users", testSeveralSubscriptions},
		{"a joined user has subscribers", testHasSubscribers},
		{"joining twice is joining once", testJoinTwice},
		{"leaving and joining again misses nothing", testRejoin},
		{"many users join at once", testManyUsers},
		{"joins and leaves may be concurrent", testConcurrentJoins},
		{"empty arguments are valid", testNothing},
		{"the handler is called from one goroutine at a time", testSerial},
		{"a handler that blocks delays no other", testSlowHandler},
		{"a join that gives up takes effect later", testJoinGivesUp},
		{"a publish heeds its context", testPublishContext},
		{"closing a subscription silences its handler", testCloseSubscription},
		{"closing a bus silences its handlers", testCloseBus},
		{"closing a subscription waits for its handler", testCloseSubscriptionWaits},
		{"closing a bus waits for its handlers", testCloseBusWaits},
		{"nothing works after closing", testAfterClose},
		{"wakes reach every listener", testWakes},
		{"wakes end with their context", testWakesContext},
		{"wakes end with the bus", testWakesClose},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			bus := newBus(t)
			test.run(t, bus)
			if err := bus.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			goleak.VerifyNone(t, before)
		})
	}
}

// subscribe opens a subscription with a Recorder, and joins users.
func subscribe(t *testing.T, bus pubsub.Bus, users ...pubsub.Address) (pubsub.Subscription, *Recorder) {
	t.Helper()
	r := NewRecorder()
	return handle(t, bus, r, users...), r
}

// handle opens a subscription with a given handler, and joins users.
func handle(t *testing.T, bus pubsub.Bus, h pubsub.Handler, users ...pubsub.Address) pubsub.Subscription {
	t.Helper()
	s, err := bus.Subscribe(h)
	if err != nil {
		t.Fatalf("Subscribe: %v", err)
	}
	join(t, s, users...)
	return s
}

func join(t *testing.T, s pubsub.Subscription, users ...pubsub.Address) {
	t.Helper()
	if err := s.Join(t.Context(), users...); err != nil {
		t.Fatalf("Join: %v", err)
	}
}

func leave(t *testing.T, s pubsub.Subscription, users ...pubsub.Address) {
	t.Helper()
	if err := s.Leave(t.Context(), users...); err != nil {
		t.Fatalf("Leave: %v", err)
	}
}

func closeSubscription(t *testing.T, s pubsub.Subscription) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func publish(t *testing.T, bus pubsub.Bus, updates ...pubsub.Update) {
	t.Helper()
	if err := bus.Publish(t.Context(), updates, nil); err != nil {
		t.Fatalf("Publish: %v", err)
	}
}

// expect waits until len(want) updates have arrived. It fails the test if the updates that
// arrived differ from want in users, versions or order.
func expect(t *testing.T, r *Recorder, want ...pubsub.Update) {
	t.Helper()
	for i, got := range r.AwaitUpdates(t, len(want)) {
		if i == len(want) || got.Address() != want[i].Address() || got.Version != want[i].Version { //nolint:gosec // i < len(want), checked first
			t.Fatalf("update %d of %d is version %d of %+v", i, len(want), got.Version, got.Address())
		}
	}
}

// users returns n users of one partition, so that the order of their updates is guaranteed.
// The users are new in each test, since late updates of an earlier test may still arrive.
func users(t *testing.T, n int) []pubsub.Address {
	users := make([]pubsub.Address, n)
	for i := range users {
		users[i] = pubsub.Address{ID: fmt.Sprintf("%s/%d", t.Name(), i), Partition: 7}
	}
	return users
}

// lost fails the test if HandleGap was called, since no bus of this suite may lose updates.
func lost(t *testing.T, r *Recorder) {
	t.Helper()
	if gaps := r.Gaps(); gaps > 0 {
		t.Errorf("HandleGap was called %d times, though nothing was lost", gaps)
	}
}
