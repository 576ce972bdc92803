package pubsub_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/badged/badged/pubsub"
	"github.com/badged/badged/pubsub/pubsubtest"
)

// longKeys returns keys with names that are long enough.
func longKeys(names ...string) []string {
	keys := make([]string, len(names))
	for i, name := range names {
		keys[i] = name + strings.Repeat("-", pubsub.MinKeyBytes)
	}
	return keys
}

// Messages signed with any of the keys are accepted, so that processes can
// change keys one after the other.
func TestRedisKeysChange(t *testing.T) {
	srv := startRedis(t)
	u := pubsub.Address{ID: "alice", Partition: 3}
	for name, tc := range map[string]struct{ publisher, subscriber []string }{
		"before":                       {[]string{"old"}, []string{"old"}},
		"the subscriber knows both":    {[]string{"old"}, []string{"old", "new"}},
		"the publisher does too":       {[]string{"old", "new"}, []string{"old", "new"}},
		"the publisher changes first":  {[]string{"new", "old"}, []string{"old", "new"}},
		"the subscriber changes first": {[]string{"old", "new"}, []string{"new", "old"}},
		"the old one is gone":          {[]string{"new"}, []string{"new", "old"}},
	} {
		t.Run(name, func(t *testing.T) {
			publisher := newRedis(t, pubsub.RedisConfig{URL: srv.URL() + patient, Keys: longKeys(tc.publisher...)})
			subscriber := newRedis(t, pubsub.RedisConfig{URL: srv.URL() + patient, Keys: longKeys(tc.subscriber...)})
			s, r := subscribe(t, subscriber, u)
			publish(t, publisher, pubsubtest.NewUpdate(u, 1))
			r.AwaitVersion(t, u, 1)
			if n := subscriber.Stats().Unsigned; n != 0 {
				t.Errorf("%d messages were dropped", n)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// capture returns what a bus publishes over Redis for an update.
func capture(t *testing.T, client *redis.Client, bus *pubsub.Redis, channel string, u pubsub.Update) string {
	t.Helper()
	subscription := client.Subscribe(t.Context(), channel)
	defer subscription.Close()
	if _, err := subscription.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	publish(t, bus, u)
	message, err := subscription.ReceiveMessage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return message.Payload
}

// Updates that no key has signed are dropped and counted.
func TestRedisDropsUnsignedMessages(t *testing.T) {
	srv := startRedis(t)
	client := newClient(t, srv)
	bus := newRedis(t, pubsub.RedisConfig{URL: srv.URL() + patient, Keys: longKeys("secret")})
	stranger := newRedis(t, pubsub.RedisConfig{URL: srv.URL() + patient, Keys: longKeys("guess")})
	u, other := pubsub.Address{ID: "alice", Partition: 3}, pubsub.Address{ID: "bob", Partition: 3}
	s, r := subscribe(t, bus, u, other)
	defer s.Close()

	const channel, others = "badged:{p03}:u:alice", "badged:{p03}:u:bob"
	signed := capture(t, client, bus, channel, pubsubtest.NewUpdate(u, 1))
	r.AwaitVersion(t, u, 1)
	wrong := capture(t, client, stranger, channel, pubsubtest.NewUpdate(u, 2))
	plain, err := json.Marshal(pubsubtest.NewUpdate(u, 3))
	if err != nil {
		t.Fatal(err)
	}
	forged := 1 // the stranger's, which was published
	for _, m := range []struct{ channel, payload string }{
		{channel, string(plain)},
		{channel, wrong},
		{others, signed},                         // for another user
		{channel, signed[:len(signed)-1] + " }"}, // with another body
		{channel, signed[1:]},                    // with a part of the signature
		{channel, signed[:22]},
		{channel, ""},
		{channel, "."},
		{channel, "......................." + string(plain)},
	} {
		if err := client.Publish(t.Context(), m.channel, m.payload).Err(); err != nil {
			t.Fatal(err)
		}
		forged++
	}
	publish(t, bus, pubsubtest.NewUpdate(other, 1), pubsubtest.NewUpdate(u, 9))
	r.AwaitVersion(t, other, 1)
	r.AwaitVersion(t, u, 9)
	if got := r.Versions(u); !slices.Equal(got, []int64{1, 9}) {
		t.Errorf("updates of the versions %v were taken", got)
	}
	if n := bus.Stats().Unsigned; n != uint64(forged) {
		t.Errorf("%d messages are counted as unsigned, want %d", n, forged)
	}
	if n := bus.Stats().Malformed; n != 0 {
		t.Errorf("%d messages are counted as malformed", n)
	}
}

func TestRedisDropsUnsignedWakes(t *testing.T) {
	srv := startRedis(t)
	client := newClient(t, srv)
	bus := newRedis(t, pubsub.RedisConfig{URL: srv.URL() + patient, Keys: longKeys("secret")})
	ctx, cancel := context.WithCancel(t.Context())
	woken := make(chan int, 10)
	ended := make(chan error, 1)
	go func() { ended <- bus.Wakes(ctx, func(p int) { woken <- p }) }()
	for heard := false; !heard; { // until Wakes listens
		if err := bus.Wake(t.Context(), []int{1}); err != nil {
			t.Fatal(err)
		}
		subscribers, err := client.PubSubNumSub(t.Context(), "badged:wake").Result()
		if err != nil {
			t.Fatal(err)
		}
		heard = subscribers["badged:wake"] > 0
	}
	if err := client.Publish(t.Context(), "badged:wake", "[5]").Err(); err != nil {
		t.Fatal(err)
	}
	if err := bus.Wake(t.Context(), []int{2}); err != nil {
		t.Fatal(err)
	}
	for p := range woken {
		if p == 5 {
			t.Error("an unsigned wake was taken")
		}
		if p == 2 {
			break
		}
	}
	if n := bus.Stats().Unsigned; n != 1 {
		t.Errorf("%d messages are counted as unsigned, want 1", n)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
