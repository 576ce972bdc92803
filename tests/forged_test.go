package tests

import (
	"strings"
	"testing"

	"github.com/badged/badged/events"
	"github.com/badged/badged/pubsub"
)

// forge publishes an unsigned update on Redis with a number of unread
// messages, in a far later version than the tables have.
func forge(t *testing.T, redisURL, user, epoch string, version, total int64) {
	t.Helper()
	bus, err := pubsub.NewRedis(pubsub.RedisConfig{URL: redisURL})
	if err != nil {
		t.Fatal(err)
	}
	defer bus.Close()
	err = bus.Publish(t.Context(), []pubsub.Update{{
		Badge: pubsub.Badge{
			UserID: user, Epoch: epoch, Version: version, Total: total, Categories: map[string]int64{"chat": total},
		},
		Partition: events.PartitionOf(user, 16), BaseVersion: 1,
		Conversations: []pubsub.Conversation{{
			ConversationID: "c", Unread: total, LastSeq: total, Level: "all", Category: "chat", Version: version,
		}},
	}})
	if err != nil {
		t.Fatal(err)
	}
}

// A forged update on a Redis without a key is visible for at most the interval
// of reconciliation, even if the user gets no other update.
func TestForgedUpdateIsCorrected(t *testing.T) {
	t.Parallel()
	database, redis := newDatabase(t), newRedis(t)
	p := serve(t, database, "--redis-url="+redis.URL(), "--reconcile-interval=1s")
	ann := connect(t, p.url, "ann")
	ann.mayRewind()
	publish(t, p, delivered("c", 1, `"ann"`))
	ann.awaitTotal(1)
	publish(t, p, delivered("c", 2, `"ann"`))
	ann.awaitTotal(2)

	forge(t, redis.URL(), "ann", ann.epoch, 9e15, 777)
	ann.awaitTotal(777)
	ann.await("the numbers of the tables", func() bool { return ann.total == 2 && ann.version == 2 && ann.unread["c"] == 2 })
	publish(t, p, delivered("c", 3, `"ann"`))
	ann.awaitTotal(3)
	awaitMetric(t, p, `badged_gateway_clients_ahead_total{found="reconciliation"}`, 1)
}

// With a key a forged update is never visible, and is counted; signed updates
// arrive.
func TestForgedUpdateWithoutTheKey(t *testing.T) {
	database, redis := newDatabase(t), newRedis(t)
	key := strings.Repeat("k", 32)
	p := roles(t, database, redis, "--bus-key="+key)
	ann := connect(t, p["gateway"].url, "ann")
	publish(t, p["api"], delivered("c", 1, `"ann"`))
	ann.awaitTotal(1)
	forge(t, redis.URL(), "ann", ann.epoch, 9e15, 777)
	awaitMetric(t, p["gateway"], "badged_bus_unsigned_total", 1)
	publish(t, p["api"], delivered("c", 2, `"ann"`))
	ann.awaitTotal(2)
	for _, f := range ann.frames {
		if strings.Contains(f, "777") {
			t.Errorf("the forged update was shown: %s", f)
		}
	}
}
