package pubsub_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/badged/badged/pubsub"
)

// benchUpdate is the update of one message: one conversation, short ids.
func benchUpdate(u pubsub.Address, version int64) pubsub.Update {
	return pubsub.Update{
		Badge: pubsub.Badge{
			UserID: u.ID, Epoch: "0193a1c2", Version: version, Numbers: pubsub.Numbers{Total: 17, Mentions: 2},
			Categories: map[string]pubsub.Numbers{"chat": {Total: 12}, "likes": {Total: 5}},
		},
		Partition:   u.Partition,
		BaseVersion: version - 1,
		Conversations: []pubsub.Conversation{{
			ConversationID: "conversation-123456", Unread: 12, Mentions: 2, FirstUnreadSeq: 1001, ReadSeq: 1000,
			LastSeq: 1012, Level: "all", Category: "chat", Version: version,
		}},
	}
}

func BenchmarkEncodeUpdate(b *testing.B) {
	u := benchUpdate(pubsub.Address{ID: "user-123456", Partition: 3}, 1)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := json.Marshal(&u); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeUpdate(b *testing.B) {
	payload, err := json.Marshal(benchUpdate(pubsub.Address{ID: "user-123456", Partition: 3}, 1))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(payload)))
	for b.Loop() {
		if err := json.Unmarshal(payload, new(pubsub.Update)); err != nil {
			b.Fatal(err)
		}
	}
}

// counter is a handler that only counts.
type counter struct{ updates, gaps atomic.Int64 }

func (c *counter) HandleUpdate(*pubsub.Update)   { c.updates.Add(1) }
func (c *counter) HandleRoom(*pubsub.RoomUpdate) { c.updates.Add(1) }
func (c *counter) HandleGap()                    { c.gaps.Add(1) }

// BenchmarkPublish publishes batches and waits until each update was handled.
// The rate is end to end, with Redis on the same machine.
func BenchmarkPublish(b *testing.B) {
	for _, bus := range []struct {
		name string
		open func(b *testing.B) pubsub.Bus
	}{
		{"memory", func(*testing.B) pubsub.Bus { return pubsub.NewMemory() }},
		{"redis", func(b *testing.B) pubsub.Bus {
			return newRedis(b, pubsub.RedisConfig{URL: startRedis(b).URL()})
		}},
	} {
		for _, size := range []int{1, 100, 1000} {
			b.Run(fmt.Sprintf("%s/batch=%d", bus.name, size), func(b *testing.B) {
				benchmarkPublish(b, bus.open(b), size)
			})
		}
	}
}

func benchmarkPublish(b *testing.B, bus pubsub.Bus, size int) {
	users := usersOf(size)
	c := new(counter)
	s, err := bus.Subscribe(c)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	if err := s.Join(b.Context(), users...); err != nil {
		b.Fatal(err)
	}
	updates := make([]pubsub.Update, size)
	published := int64(0)
	for b.Loop() {
		published++
		for i, u := range users {
			updates[i] = benchUpdate(u, published)
		}
		publish(b, bus, updates...)
		for c.updates.Load() < published*int64(size) {
			if c.gaps.Load() > 0 {
				b.Fatal("updates were lost")
			}
			runtime.Gosched()
		}
	}
	b.ReportMetric(float64(published)*float64(size)/b.Elapsed().Seconds(), "updates/s")
}
