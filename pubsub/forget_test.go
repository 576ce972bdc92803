package pubsub

import (
	"context"
	"testing"
)

// TestNothingIsKept checks that a bus keeps nothing of users and subscriptions
// that left it.
func TestNothingIsKept(t *testing.T) {
	srv := startRedis(t)
	memory := NewMemory()
	redis, err := NewRedis(RedisConfig{URL: srv.URL()})
	if err != nil {
		t.Fatal(err)
	}
	for _, bus := range []Bus{memory, redis} {
		defer bus.Close()
		users := []Address{{ID: "a"}, {ID: "b"}}
		var subs []Subscription
		for range 3 {
			s, err := bus.Subscribe(make(updateChan))
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Join(t.Context(), users...); err != nil {
				t.Fatal(err)
			}
			subs = append(subs, s)
		}
		for _, s := range subs {
			if err := s.Leave(t.Context(), users[0]); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		done, cancel := context.WithCancel(t.Context())
		cancel()
		if err := bus.Wakes(done, func(int) {}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(memory.subs) + len(memory.joined) + len(memory.wakes); n != 0 {
		t.Errorf("the in-process bus keeps %d entries of what has left", n)
	}
	if !redis.Connected() {
		t.Error("the Redis bus counts listeners that have ended")
	}
}
