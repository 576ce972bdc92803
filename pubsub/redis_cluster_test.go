package pubsub_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/badged/badged/internal/devtest/privateredis"
	"github.com/badged/badged/pubsub"
	"github.com/badged/badged/pubsub/pubsubtest"
)

// startCluster runs a cluster that ends with the test.
func startCluster(t *testing.T, cfg privateredis.ClusterConfig) *privateredis.Cluster {
	t.Helper()
	c, err := privateredis.StartCluster(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	return c
}

func TestRedisCluster(t *testing.T) {
	cluster := startCluster(t, privateredis.ClusterConfig{})
	pubsubtest.Run(t, func(t *testing.T) pubsub.Bus {
		return newRedis(t, pubsub.RedisConfig{URL: cluster.URL()})
	})
}

// TestRedisClusterBefore7 runs the suite on a cluster without sharded pub/sub,
// as before Redis 7.
func TestRedisClusterBefore7(t *testing.T) {
	cluster := startCluster(t, privateredis.ClusterConfig{Masters: 2, Args: []string{
		"--rename-command", "SPUBLISH", "", "--rename-command", "SSUBSCRIBE", "", "--rename-command", "SUNSUBSCRIBE", "",
	}})
	pubsubtest.Run(t, func(t *testing.T) pubsub.Bus {
		return newRedis(t, pubsub.RedisConfig{URL: cluster.URL()})
	})
}

// TestRedisClusterWire pins what other programs see in a cluster: messages
// stay in the shard of their partition.
func TestRedisClusterWire(t *testing.T) {
	cluster := startCluster(t, privateredis.ClusterConfig{})
	bus := newRedis(t, pubsub.RedisConfig{URL: cluster.URL()})
	opt, err := redis.ParseClusterURL(cluster.URL())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClusterClient(opt)
	defer client.Close()

	u := pubsub.Address{ID: "alice", Partition: 3}
	for channel, send := range map[string]func() error{
		"badged:{p03}:u:alice": func() error {
			return bus.Publish(t.Context(), []pubsub.Update{pubsubtest.NewUpdate(u, 1)}, nil)
		},
		"badged:wake": func() error { return bus.Wake(t.Context(), []int{3}) },
	} {
		ps := client.SSubscribe(t.Context(), channel)
		if _, err := ps.Receive(t.Context()); err != nil { // the acknowledgement
			t.Fatal(err)
		}
		if err := send(); err != nil {
			t.Fatal(err)
		}
		if msg, err := ps.ReceiveMessage(t.Context()); err != nil || msg.Channel != channel {
			t.Errorf("on channel %s: %v, %v", channel, msg, err)
		}
		if err := ps.Close(); err != nil {
			t.Error(err)
		}
	}
}

// members returns a user of each of 16 partitions.
func members() []pubsub.Address {
	users := make([]pubsub.Address, 16)
	for i := range users {
		users[i] = pubsub.Address{ID: "u", Partition: i}
	}
	return users
}

// keyOf returns a key in the slot of a partition.
func keyOf(u pubsub.Address) string { return fmt.Sprintf("badged:{p%02d}:", u.Partition) }

// masterOf returns the master that serves the partition of u.
func masterOf(t *testing.T, c *privateredis.Cluster, u pubsub.Address) int {
	t.Helper()
	master, err := c.MasterOf(t.Context(), keyOf(u))
	if err != nil {
		t.Fatal(err)
	}
	return master
}

// untilPublished publishes until the bus accepts it: then the cluster serves
// the partitions again.
func untilPublished(t *testing.T, bus pubsub.Bus, updates ...pubsub.Update) {
	t.Helper()
	patience := time.After(pubsubtest.Patience)
	for {
		err := bus.Publish(t.Context(), updates, nil)
		if err == nil {
			return
		}
		select {
		case <-patience:
			t.Fatal(err)
		default: // go-redis has waited before it gave up
		}
	}
}

// When a master is killed and its replica takes over, subscribers of its
// partitions get a gap and then updates; all others get updates throughout.
func TestRedisClusterMasterIsKilled(t *testing.T) {
	cluster := startCluster(t, privateredis.ClusterConfig{Replicas: true})
	bus := newRedis(t, pubsub.RedisConfig{URL: cluster.URL()})
	users := members()
	_, r := subscribe(t, bus, users...)
	for _, u := range users {
		publish(t, bus, pubsubtest.NewUpdate(u, 1))
		r.AwaitVersion(t, u, 1)
	}
	if !bus.Connected() {
		t.Error("a bus that has joined all users is not connected")
	}

	dead := masterOf(t, cluster, users[3])
	var orphans, others []pubsub.Address
	for _, u := range users {
		if masterOf(t, cluster, u) == dead {
			orphans = append(orphans, u)
		} else {
			others = append(others, u)
		}
	}
	cluster.Masters[dead].Kill()
	for _, u := range others {
		publish(t, bus, pubsubtest.NewUpdate(u, 2))
		r.AwaitVersion(t, u, 2)
	}
	// Each partition has its own gap.
	r.AwaitGaps(t, len(orphans))
	for _, u := range orphans {
		untilPublished(t, bus, pubsubtest.NewUpdate(u, 3))
		r.AwaitVersion(t, u, 3)
	}
	if got := r.Gaps(); got != len(orphans) {
		t.Errorf("HandleGap was called %d times, want once for each of %d partitions", got, len(orphans))
	}
	if !r.Serial() {
		t.Error("calls of the handler overlapped")
	}
}

// When the slot of a partition moves to another shard, its users get a gap and
// then updates; nothing else happens.
func TestRedisClusterSlotMoves(t *testing.T) {
	cluster := startCluster(t, privateredis.ClusterConfig{})
	// Without canaries, which would notice too, but late.
	bus := newRedis(t, pubsub.RedisConfig{URL: cluster.URL(), PingInterval: time.Hour})
	users := members()
	_, r := subscribe(t, bus, users...)
	u := users[3]
	for round := range 3 {
		from := masterOf(t, cluster, u)
		if err := cluster.MoveSlot(t.Context(), keyOf(u), from, (from+1)%len(cluster.Masters)); err != nil {
			t.Fatal(err)
		}
		r.AwaitGaps(t, round+1)
		for _, u := range users {
			publish(t, bus, pubsubtest.NewUpdate(u, int64(round)))
			r.AwaitVersion(t, u, int64(round))
		}
	}
	if got := r.Gaps(); got != 3 {
		t.Errorf("HandleGap was called %d times for 3 moves", got)
	}
	if stats := bus.Stats(); stats.Reconnects != 3 || stats.PublishErrors != 0 {
		t.Errorf("after 3 moves: %+v", stats)
	}
}

// While the cluster is down, Join waits; the users are joined when it is back.
func TestRedisClusterJoinWhileDown(t *testing.T) {
	cluster := startCluster(t, privateredis.ClusterConfig{})
	for _, s := range cluster.Masters {
		s.Kill()
	}
	lost := make(chan struct{}, 1)
	bus := newRedis(t, pubsub.RedisConfig{URL: cluster.URL(), Logger: slog.New(lossLog{slog.DiscardHandler, lost})})
	r := pubsubtest.NewRecorder()
	s, err := bus.Subscribe(r)
	if err != nil {
		t.Fatal(err)
	}
	users := members()
	joined := make(chan error, 1)
	go func() { joined <- s.Join(t.Context(), users...) }()
	select {
	case <-lost:
	case <-time.After(pubsubtest.Patience):
		t.Fatal("no subscription has noticed that the cluster is down")
	}
	if bus.Connected() {
		t.Error("a bus whose cluster is down is connected")
	}
	if err := bus.Publish(t.Context(), []pubsub.Update{pubsubtest.NewUpdate(users[0], 1)}, nil); err == nil {
		t.Error("Publish to a cluster that is down succeeded")
	}
	for _, s := range cluster.Masters {
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-joined; err != nil {
		t.Errorf("Join of a cluster that came back: %v", err)
	}
	for _, u := range users {
		untilPublished(t, bus, pubsubtest.NewUpdate(u, 2))
		r.AwaitVersion(t, u, 2)
	}
}
