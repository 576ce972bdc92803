package pubsubtest

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/badged/badged/pubsub"
)

func done(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func testJoinBeforePublish(t *testing.T, bus pubsub.Bus) {
	s, r := subscribe(t, bus)
	var sent []pubsub.Update
	for _, u := range users(t, 200) {
		join(t, s, u)
		sent = append(sent, NewUpdate(u, 1))
		publish(t, bus, sent[len(sent)-1])
	}
	expect(t, r, sent...)
	lost(t, r)
}

func testOnlyJoined(t *testing.T, bus pubsub.Bus) {
	joined, stranger := users(t, 2)[0], users(t, 2)[1]
	elsewhere := pubsub.Address{ID: joined.ID, Partition: joined.Partition + 1}
	s, r := subscribe(t, bus, joined, stranger, elsewhere)
	leave(t, s, stranger, elsewhere)
	publish(t, bus, NewUpdate(elsewhere, 1), NewUpdate(stranger, 2))
	publish(t, bus, NewUpdate(joined, 3))
	expect(t, r, NewUpdate(joined, 3))
}

func testSeveralSubscriptions(t *testing.T, bus pubsub.Bus) {
	u := users(t, 3)
	aSub, a := subscribe(t, bus, u[0], u[1])
	bSub, b := subscribe(t, bus, u[1], u[2])
	first := []pubsub.Update{NewUpdate(u[0], 1), NewUpdate(u[1], 2), NewUpdate(u[2], 3)}
	publish(t, bus, first...)
	expect(t, a, first[:2]...)
	expect(t, b, first[1:]...)

	// A Leave of a user in one subscription does not affect the other subscription.
	leave(t, aSub, u[1])
	second := []pubsub.Update{NewUpdate(u[1], 4), NewUpdate(u[0], 5)}
	publish(t, bus, second...)
	expect(t, b, first[1], first[2], second[0])
	closeSubscription(t, bSub)
	publish(t, bus, NewUpdate(u[1], 6), NewUpdate(u[0], 7))
	expect(t, a, first[0], first[1], second[1], NewUpdate(u[0], 7))
	expect(t, b, first[1], first[2], second[0])
}

// testHasSubscribers checks that HasSubscribers is true while any subscription has joined the
// user.
func testHasSubscribers(t *testing.T, bus pubsub.Bus) {
	u := users(t, 1)[0]
	check := func(moment string) {
		t.Helper()
		if !bus.HasSubscribers(u) {
			t.Errorf("HasSubscribers is false for a user %s", moment)
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
	sent := []pubsub.Update{NewUpdate(u[0], 1), NewUpdate(u[1], 2)}
	publish(t, bus, sent...)
	expect(t, r, sent...)
	leave(t, s, u[0])
	publish(t, bus, NewUpdate(u[0], 3), NewUpdate(u[1], 4))
	expect(t, r, append(sent, NewUpdate(u[1], 4))...)
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
	sent := make([]pubsub.Update, len(all), len(all)+1)
	for i, u := range all {
		sent[i] = pubsub.Update{Badge: pubsub.Badge{UserID: u.ID, Version: int64(i)}, Partition: u.Partition}
	}
	publish(t, bus, sent...)
	expect(t, r, sent...)
	leave(t, s, all[1:]...)
	publish(t, bus, sent[1:]...)
	publish(t, bus, sent[0])
	expect(t, r, append(sent, sent[0])...)
	lost(t, r)
}

// testConcurrentJoins lets goroutines join and leave the same users concurrently. Then it joins
// some users and leaves the others, and checks that exactly the joined users get updates.
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

// testJoinGivesUp joins users with a canceled context. Either Join returns nil without waiting,
// or it fails, and the bus joins the users later and calls HandleGap.
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
