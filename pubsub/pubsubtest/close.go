package pubsubtest

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/badged/badged/pubsub"
)

// testSilence calls the function `closing`, which closes a subscription or the bus, while updates
// arrive. After `closing` has returned, the handler must not be called.
func testSilence(t *testing.T, bus pubsub.Bus, closing func(pubsub.Subscription)) {
	u := users(t, 1)[0]
	s, r := subscribe(t, bus, u)
	stop := make(chan struct{})
	published := make(chan struct{})
	go func() {
		defer close(published)
		for version := int64(0); ; version++ {
			select {
			case <-stop:
				return
			default:
			}
			err := bus.Publish(t.Context(), []pubsub.Update{NewUpdate(u, version), NewUpdate(u, version)}, nil)
			if err != nil && !errors.Is(err, pubsub.ErrClosed) {
				t.Errorf("Publish: %v", err)
			}
		}
	}()
	r.AwaitUpdates(t, 100)
	closing(s)
	if r.inside.Load() != 0 {
		t.Error("a call of the handler was under way when Close had returned")
	}
	before := len(r.Updates())
	closing(s) // idempotent
	close(stop)
	<-published
	if got := len(r.Updates()); got != before {
		t.Errorf("the handler was called %d times after Close had returned", got-before)
	}
}

func testCloseSubscription(t *testing.T, bus pubsub.Bus) {
	_, other := subscribe(t, bus, users(t, 2)[1])
	testSilence(t, bus, func(s pubsub.Subscription) { closeSubscription(t, s) })
	publish(t, bus, NewUpdate(users(t, 1)[0], 1), NewUpdate(users(t, 2)[1], 1))
	other.AwaitVersion(t, users(t, 2)[1], 1)
}

func testCloseBus(t *testing.T, bus pubsub.Bus) {
	testSilence(t, bus, func(pubsub.Subscription) {
		if err := bus.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

// testCloseWaits calls the function `closing`, which closes a subscription or the bus, while the
// handler runs. `closing` must not return before the handler has returned.
func testCloseWaits(t *testing.T, bus pubsub.Bus, closing func(pubsub.Subscription) error) {
	u := users(t, 1)[0]
	slow := newBlocker()
	s := handle(t, bus, slow, u)
	publish(t, bus, NewUpdate(u, 1), NewUpdate(u, 2))
	<-slow.entered

	closed := make(chan error, 1)
	go func() { closed <- closing(s) }()
	for !errors.Is(s.Leave(t.Context()), pubsub.ErrClosed) {
		runtime.Gosched() // let Close begin
	}
	// A faulty Close returns while the handler still runs: give Close time to return. If this time is
	// too short, the test does not detect the fault, but a correct Close never fails the test.
	for range 10_000 {
		runtime.Gosched()
	}
	select {
	case err := <-closed:
		t.Errorf("Close returned %v while a call of the handler was under way", err)
		close(slow.release)
		return
	default:
	}
	close(slow.release)
	if err := <-closed; err != nil {
		t.Errorf("Close: %v", err)
	}
	if got := len(slow.Updates()); got == 0 {
		t.Error("the call that was under way has not ended")
	}
}

func testCloseSubscriptionWaits(t *testing.T, bus pubsub.Bus) {
	testCloseWaits(t, bus, pubsub.Subscription.Close)
}

func testCloseBusWaits(t *testing.T, bus pubsub.Bus) {
	testCloseWaits(t, bus, func(pubsub.Subscription) error { return bus.Close() })
}

func testAfterClose(t *testing.T, bus pubsub.Bus) {
	u := users(t, 1)[0]
	s, _ := subscribe(t, bus, u)
	closeSubscription(t, s)
	check := func(name string, err error) {
		t.Helper()
		if !errors.Is(err, pubsub.ErrClosed) {
			t.Errorf("%s after Close: %v, want %v", name, err, pubsub.ErrClosed)
		}
	}
	check("Join", s.Join(t.Context(), u))
	check("Leave", s.Leave(t.Context(), u))

	ofBus, _ := subscribe(t, bus, u)
	if err := bus.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	check("Join", ofBus.Join(t.Context(), u))
	check("Leave", ofBus.Leave(t.Context(), u))
	if err := ofBus.Close(); err != nil {
		t.Errorf("Close of a subscription whose bus is closed: %v", err)
	}
	_, err := bus.Subscribe(NewRecorder())
	check("Subscribe", err)
	check("Publish", bus.Publish(t.Context(), []pubsub.Update{NewUpdate(u, 1)}, []pubsub.RoomUpdate{*NewRoomUpdate(u, 1)}))
	check("Wake", bus.Wake(t.Context(), []int{1}))
	check("Wakes", bus.Wakes(context.Background(), func(int) {}))
}
