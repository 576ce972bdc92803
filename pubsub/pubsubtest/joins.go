package pubsubtest

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/badged/badged/pubsub"
)

// done returns a canceled context.
func done(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func testJoinBeforePublish(t *testing.T, bus pubsub.Bus) {
	s, r := subscribe(t, bus)
	all := users(t, 200)
	for _, u := range all {
		join(t, s, u)
		publish(t, bus, NewUpdate(u, 1))
	}
	r.AwaitUpdates(t, len(all))
	for i, got := range r.Updates() {
		if got.UserID != all[i].ID {
			t.Fatalf("update %d is of %s, want %s", i, got.UserID, all[i].ID)
		}
	}
	lost(t, r)
}

func testOnlyJoined(t *testing.T, bus pubsub.Bus) {
	joined, stranger := users(t, 2)[0], users(t, 2)[1]
	elsewhere := pubsub.Address{ID: joined.ID, Partition: joined.Partition + 1}
	s, r := subscribe(t, bus, joined, stranger, elsewhere)
	leave(t, s, stranger, elsewhere)
	publish(t, bus, NewUpdate(elsewhere, 1), NewUpdate(stranger, 2))
	publish(t, bus, NewUpdate(joined, 3))
	r.AwaitVersion(t, joined, 3)
	if got := r.Updates(); len(got) != 1 {
		t.Errorf("%d updates arrived, want the one of the user that is joined", len(got))
	}
}

func testSeveralSubscriptions(t *testing.T, bus pubsub.Bus) {
	u := users(t, 3)
	aSub, a := subscribe(t, bus, u[0], u[1])
	bSub, b := subscribe(t, bus, u[1], u[2])
	publish(t, bus, NewUpdate(u[0], 1), NewUpdate(u[1], 2), NewUpdate(u[2], 3))
	a.AwaitVersion(t, u[1], 2)
	b.AwaitVersion(t, u[2], 3)

	// Leaving a user in one subscription leaves the other joined.
	leave(t, aSub, u[1])
	publish(t, bus, NewUpdate(u[1], 4), NewUpdate(u[0], 5))
	b.AwaitVersion(t, u[1], 4)
	a.AwaitVersion(t, u[0], 5)
	closeSubscription(t, bSub)
	publish(t, bus, NewUpdate(u[0], 6))
	a.AwaitVersion(t, u[0], 6)

	for _, check := range []struct {
		r    *Recorder
		want [3][]int64
	}{
		{a, [3][]int64{{1, 5, 6}, {2}, nil}},
		{b, [3][]int64{nil, {2, 4}, {3}}},
	} {
		for i, want := range check.want {
			if got := check.r.Versions(u[i]); !slices.Equal(got, want) {
				t.Errorf("%s: versions %v arrived, want %v", u[i].ID, got, want)
			}
		}
	}
}

// testHasSubscribers checks that a bus never denies the subscribers of a joined
// user.
func testHasSubscribers(t *testing.T, bus pubsub.Bus) {
	u := users(t, 1)[0]
	check := func(when string) {
		t.Helper()
		if !bus.HasSubscribers(u) {
			t.Errorf("HasSubscribers is false of a user %s", when)
		}
	}
	a, _ := subscribe(t, bus, u)
	check("that has joined")
	b, _ := subscribe(t, bus, u)
	leave(t, a, u)
	check("that another subscription has left")
	join(t, a, u)
	leave(t, b, u)
	check("that was joined again")
}

func testJoinTwice(t *testing.T, bus pubsub.Bus) {
	u := users(t, 2)
	s, r := subscribe(t, bus, u[0], u[0])
	join(t, s, u...)
	publish(t, bus, NewUpdate(u[0], 1), NewUpdate(u[1], 2))
	r.AwaitVersion(t, u[1], 2)
	leave(t, s, u[0])
	publish(t, bus, NewUpdate(u[0], 3), NewUpdate(u[1], 4))
	r.AwaitVersion(t, u[1], 4)
	if got, want := r.Versions(u[0]), []int64{1}; !slices.Equal(got, want) {
		t.Errorf("versions %v arrived, want %v", got, want)
	}
}

func testRejoin(t *testing.T, bus pubsub.Bus) {
	const rounds = 200
	u := users(t, 1)[0]
	s, r := subscribe(t, bus)
	for version := range int64(rounds) {
		join(t, s, u)
		publish(t, bus, NewUpdate(u, version))
		leave(t, s, u)
		join(t, s, u)
		publish(t, bus, NewUpdate(u, rounds+version))
		r.AwaitVersion(t, u, rounds+version)
		leave(t, s, u)
	}
	lost(t, r)
}

func testManyUsers(t *testing.T, bus pubsub.Bus) {
	all := users(t, 5000)
	s, r := subscribe(t, bus, all...)
	updates := make([]pubsub.Update, len(all))
	for i, u := range all {
		updates[i] = pubsub.Update{Badge: pubsub.Badge{UserID: u.ID, Version: int64(i)}, Partition: u.Partition}
	}
	publish(t, bus, updates...)
	for i, got := range r.AwaitUpdates(t, len(all)) {
		if got.Version != int64(i) {
			t.Fatalf("update %d has version %d", i, got.Version)
		}
	}
	leave(t, s, all[1:]...)
	publish(t, bus, updates[1:]...)
	publish(t, bus, updates[0])
	if got := r.AwaitUpdates(t, len(all)+1); got[len(all)].UserID != all[0].ID {
		t.Error("the update of a user that was left arrived")
	}
	lost(t, r)
}

// testConcurrentJoins has goroutines join and leave the same users at once,
// then checks that the last call counts.
func testConcurrentJoins(t *testing.T, bus pubsub.Bus) {
	const goroutines, rounds = 8, 30
	all := users(t, 20)
	s, r := subscribe(t, bus)
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for round := range rounds {
				some := all[(g+round)%10 : (g+round)%10+10]
				if err := s.Join(t.Context(), some...); err != nil {
					t.Errorf("Join: %v", err)
				}
				if err := s.Leave(t.Context(), some[:5]...); err != nil {
					t.Errorf("Leave: %v", err)
				}
			}
		})
	}
	wg.Wait()
	in, out := all[:10], all[10:]
	join(t, s, in...)
	leave(t, s, out...)
	for _, u := range slices.Concat(out, in) {
		publish(t, bus, NewUpdate(u, 1))
	}
	for _, u := range in {
		r.AwaitVersion(t, u, 1)
	}
	for _, u := range out {
		if got := r.Versions(u); len(got) > 0 {
			t.Errorf("%s: versions %v arrived, though the user was left", u.ID, got)
		}
	}
	lost(t, r)
}

func testNothing(t *testing.T, bus pubsub.Bus) {
	s, r := subscribe(t, bus)
	join(t, s)
	leave(t, s)
	leave(t, s, users(t, 1)...) // never joined
	publish(t, bus)
	if err := bus.Wake(t.Context(), nil); err != nil {
		t.Errorf("Wake: %v", err)
	}
	publish(t, bus, NewUpdate(users(t, 1)[0], 1)) // no handler is joined
	lost(t, r)
}

// testJoinGivesUp joins with a canceled context: either the bus need not wait,
// or the user is joined later and a gap reports it.
func testJoinGivesUp(t *testing.T, bus pubsub.Bus) {
	u := users(t, 2)
	s, r := subscribe(t, bus)
	if err := s.Join(done(t), u...); err != nil {
		r.AwaitGaps(t, 1)
	}
	publish(t, bus, NewUpdate(u[0], 1), NewUpdate(u[1], 1))
	r.AwaitVersion(t, u[0], 1)
	r.AwaitVersion(t, u[1], 1)

	// Join does not wait for users that are joined already.
	if err := s.Join(done(t), u...); err != nil {
		t.Errorf("Join of users that are joined: %v", err)
	}
}
