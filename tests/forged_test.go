package tests

import (
	"strings"
	"testing"

	"github.com/badged/badged/events"
	"github.com/badged/badged/pubsub"
)

// forge publishes an unsigned update on Redis, with a total and a far later version than the tables
// have.
func forge(t *testing.T, redisURL, user, epoch string, version, total int64) {
	t.Helper()
	bus, err := pubsub.NewRedis(pubsub.RedisConfig{URL: redisURL})
	if err != nil {
		t.Fatal(err)
	}
	defer bus.Close()
	err = bus.Publish(t.Context(), []pubsub.Update{{
		Badge: pubsub.Badge{
			UserID: user, Epoch: epoch, Version: version, Numbers: pubsub.Numbers{Total: total}, Categories: map[string]pubsub.Numbers{"chat": {Total: total}},
		},
		Partition: events.PartitionOf(user, partitions), BaseVersion: 1,
		Conversations: []pubsub.Conversation{{
			ConversationID: "c", Unread: total, LastSeq: total, Level: "default", Category: "chat", Version: version,
		}},
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
}

// If updates are signed with a key, clients never see a forged update, a metric counts it, and
// signed updates arrive.
func TestForgedUpdateWithoutTheKey(t *testing.T) {
	t.Parallel()
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
