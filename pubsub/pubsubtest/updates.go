package pubsubtest

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/pubsub"
)

func testUpdateIsWhole(t *testing.T, bus pubsub.Bus) {
	u := users(t, 1)[0]
	_, r := subscribe(t, bus, u)
	sent := []pubsub.Update{
		NewUpdate(u, 1<<62+1),
		{Badge: pubsub.Badge{UserID: u.ID}, Partition: u.Partition},
		{
			Badge:         pubsub.Badge{UserID: u.ID, Categories: map[string]pubsub.Numbers{}},
			Partition:     u.Partition,
			Conversations: []pubsub.Conversation{},
		},
	}
	publish(t, bus, sent...)
	for i, got := range r.AwaitUpdates(t, len(sent)) {
		if diff := cmp.Diff(&sent[i], got); diff != "" {
			t.Errorf("update %d changed on its way (-sent +received):\n%s", i, diff)
		}
	}
	lost(t, r)
}

func testSliceIsFree(t *testing.T, bus pubsub.Bus) {
	u := users(t, 1)[0]
	_, r := subscribe(t, bus, u)
	updates := []pubsub.Update{NewUpdate(u, 1)}
	publish(t, bus, updates...)
	updates[0] = NewUpdate(u, 2)
	publish(t, bus, updates...)
	updates[0] = pubsub.Update{}
	expect(t, r, NewUpdate(u, 1), NewUpdate(u, 2))
}

func testUserIDs(t *testing.T, bus pubsub.Bus) {
	ids := []string{
		"a", " ", "two words", " leading and trailing ",
		":", "a:b", "u:", ":u:a", "badged:{p01}:u:a", "badged:wake",
		"{", "}", "{}", "{p01}", "}{", "{p02}:u:a",
		"*", "?", "[a-z]", "a*", `\`, `"`, "'", "%s", "<b>", "&amp;", "\u2028",
		"ü", "u\u0308", "用户", "🦊", strings.Repeat("é", 64), strings.Repeat("x", 128),
	}
	var all []pubsub.Address
	for _, id := range ids {
		for _, partition := range []int{0, 1, 10, 99, 100, 1023} {
			all = append(all, pubsub.Address{ID: id, Partition: partition})
		}
	}
	_, r := subscribe(t, bus, all...)
	for i, u := range all {
		publish(t, bus, NewUpdate(u, int64(i)))
	}
	r.AwaitUpdates(t, len(all))
	for i, u := range all {
		if got, want := r.Versions(u), []int64{int64(i)}; !slices.Equal(got, want) {
			t.Errorf("%+v: versions %v arrived, want %v", u, got, want)
		}
	}
}

func testOrder(t *testing.T, bus pubsub.Bus) {
	const rounds, perCall = 50, 40
	all := users(t, 5)
	_, r := subscribe(t, bus, all...)
	sent := make([]pubsub.Update, rounds*perCall)
	for i := range sent {
		sent[i] = NewUpdate(all[i%len(all)], int64(i))
	}
	for call := range slices.Chunk(sent, perCall) {
		publish(t, bus, call...)
	}
	expect(t, r, sent...)
	lost(t, r)
}

// testSerial publishes from several goroutines to a handler that detects concurrent calls.
func testSerial(t *testing.T, bus pubsub.Bus) {
	const publishers, each = 8, 100
	all := users(t, publishers)
	_, r := subscribe(t, bus, all...)
	var wg sync.WaitGroup
	for _, u := range all {
		wg.Go(func() {
			for version := range int64(each) {
				if err := bus.Publish(t.Context(), []pubsub.Update{NewUpdate(u, version)}, nil); err != nil {
					t.Errorf("Publish: %v", err)
				}
			}
		})
	}
	wg.Wait()
	r.AwaitUpdates(t, publishers*each)
	if !r.Serial() {
		t.Error("calls of the handler overlapped")
	}
	for _, u := range all {
		if got := r.Versions(u); len(got) != each || !slices.IsSorted(got) {
			t.Errorf("%s: versions %v arrived, want 0 to %d in order", u.ID, got, each-1)
		}
	}
	lost(t, r)
}

// blocker is a handler whose first call blocks until it is released.
type blocker struct {
	*Recorder
	once    sync.Once
	entered chan struct{}
	release chan struct{}
}

func newBlocker() *blocker {
	return &blocker{Recorder: NewRecorder(), entered: make(chan struct{}), release: make(chan struct{})}
}

func (b *blocker) HandleUpdate(u *pubsub.Update) {
	b.once.Do(func() {
		close(b.entered)
		<-b.release
	})
	b.Recorder.HandleUpdate(u)
}

func testSlowHandler(t *testing.T, bus pubsub.Bus) {
	const n = 500
	u := users(t, 1)[0]
	slow := newBlocker()
	handle(t, bus, slow, u)
	_, r := subscribe(t, bus, u)

	publish(t, bus, NewUpdate(u, 0))
	<-slow.entered
	for version := int64(1); version < n; version++ {
		publish(t, bus, NewUpdate(u, version))
	}
	r.AwaitUpdates(t, n)
	close(slow.release)
	slow.AwaitUpdates(t, n)
	lost(t, slow.Recorder)
}

func testPublishContext(t *testing.T, bus pubsub.Bus) {
	u := users(t, 1)[0]
	_, r := subscribe(t, bus, u)
	if err := bus.Publish(done(t), []pubsub.Update{NewUpdate(u, 1)}, nil); err == nil {
		t.Error("Publish succeeded, though its context was done")
	}
	publish(t, bus, NewUpdate(u, 2))
	r.AwaitVersion(t, u, 2)
}
