package pubsub_test

import (
	"testing"

	"github.com/badged/badged/pubsub"
	"github.com/badged/badged/pubsub/pubsubtest"
)

func TestMemory(t *testing.T) {
	pubsubtest.Run(t, func(*testing.T) pubsub.Bus { return pubsub.NewMemory() })
}

// HasSubscribers of a Memory is exact: the projector computes no update that has no subscriber.
func TestMemoryKnowsItsSubscribers(t *testing.T) {
	bus := pubsub.NewMemory()
	defer bus.Close()
	u := pubsub.Address{ID: "alice", Partition: 1}
	check := func(want bool, when string) {
		t.Helper()
		if got := bus.HasSubscribers(u); got != want {
			t.Errorf("HasSubscribers is %v, want %v, %s", got, want, when)
		}
	}
	check(false, "before the join")
	s, err := bus.Subscribe(&stuck{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Join(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	check(true, "joined")
	if bus.HasSubscribers(pubsub.Address{ID: "alice", Partition: 2}) {
		t.Error("a user of another partition has subscribers")
	}
	if err := s.Leave(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	check(false, "left")
}

// stuck is a handler whose first call blocks until it is released. It records
// versions in order; -1 is a gap.
type stuck struct {
	entered chan struct{}
	release chan struct{}
	told    chan int64
}

func (s *stuck) HandleUpdate(u *pubsub.Update) {
	if u.Version == 0 {
		close(s.entered)
		<-s.release
	}
	s.told <- u.Version
}

func (*stuck) HandleRoom(*pubsub.RoomUpdate) {}

func (s *stuck) HandleGap() { s.told <- -1 }

// TestMemoryOverflow publishes more updates than the queue of a blocked handler can contain:
// Publish does not block, and the handler gets a gap before the later updates.
func TestMemoryOverflow(t *testing.T) {
	const limit = 1 << 16
	bus := pubsub.NewMemory()
	defer bus.Close()
	u := pubsub.Address{ID: "alice"}
	h := &stuck{entered: make(chan struct{}), release: make(chan struct{}), told: make(chan int64, limit)}
	s, err := bus.Subscribe(h)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Join(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	update := func(version int64) pubsub.Update {
		return pubsub.Update{Badge: pubsub.Badge{UserID: u.ID, Version: version}}
	}

	publish(t, bus, update(0))
	<-h.entered
	for version := int64(1); version <= limit; version++ {
		publish(t, bus, update(version))
	}
	publish(t, bus, update(limit+1), update(limit+2)) // the first over the limit
	close(h.release)
	for _, want := range []int64{0, -1, limit + 1, limit + 2} {
		if got := <-h.told; got != want {
			t.Fatalf("the handler got %d, want %d", got, want)
		}
	}
	publish(t, bus, update(limit+3))
	if got := <-h.told; got != limit+3 {
		t.Errorf("the handler got %d, want %d", got, limit+3)
	}
	if got := bus.Stats(); got != (pubsub.Stats{Gaps: 1}) {
		t.Errorf("stats are %+v", got)
	}
}
