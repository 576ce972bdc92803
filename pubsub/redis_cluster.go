package pubsub

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

type redisCluster struct {
	client *redis.ClusterClient
	// bySlot says whether the cluster has sharded pub/sub. It is nil until a master has answered.
	// Then it never changes, since the publishers and listeners of all processes must use the same
	// kind of pub/sub.
	bySlot atomic.Pointer[bool]
}

// bySlot reports whether Redis is a cluster with sharded pub/sub. In such a cluster each
// channel is served by a single shard, which the hash of the channel's name determines. The
// first call asks the master of the shard that serves the given channel.
func (r *Redis) bySlot(ctx context.Context, channel string) (bool, error) {
	if r.cluster == nil {
		return false, nil
	}
	if known := r.cluster.bySlot.Load(); known != nil {
		return *known, nil
	}
	master, err := r.cluster.client.MasterForKey(ctx, channel)
	if err != nil {
		return false, fmt.Errorf("look for the master of a slot: %w", err)
	}
	commands, err := master.Do(ctx, "COMMAND", "INFO", "SPUBLISH").Slice()
	if err != nil {
		return false, fmt.Errorf("ask whether the cluster has sharded pub/sub: COMMAND INFO: %w", err)
	}
	bySlot := len(commands) == 1 && commands[0] != nil
	if r.cluster.bySlot.CompareAndSwap(nil, &bySlot) {
		r.cfg.Logger.Info("found a Redis Cluster", "sharded_pubsub", bySlot)
	}
	return *r.cluster.bySlot.Load(), nil
}

// lookAgain is called after a failure. In a cluster it reloads the map from slots to masters,
// without blocking. Otherwise go-redis could send to a dead master for up to a minute.
func (r *Redis) lookAgain() {
	if r.cluster != nil {
		r.cluster.client.ReloadState(context.Background())
	}
}
