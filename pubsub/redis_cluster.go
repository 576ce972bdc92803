package pubsub

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// redisCluster is the client of a Redis Cluster.
type redisCluster struct {
	client *redis.ClusterClient
	// sharded says whether the cluster has sharded pub/sub. It is nil until a master has
	// answered. Then it never changes, since the publishers and listeners of all processes must
	// use the same kind of pub/sub.
	sharded atomic.Pointer[bool]
}

// sharded reports whether Redis is a cluster with sharded pub/sub. In such a cluster each
// channel is served by a single shard, which the hash of the channel's name determines. The
// first call asks the master of the shard that serves the given channel.
func (r *Redis) sharded(ctx context.Context, channel string) (bool, error) {
	if r.cluster == nil {
		return false, nil
	}
	if known := r.cluster.sharded.Load(); known != nil {
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
	sharded := len(commands) == 1 && commands[0] != nil
	if r.cluster.sharded.CompareAndSwap(nil, &sharded) {
		r.cfg.Logger.Info("found a Redis Cluster", "sharded_pubsub", sharded)
	}
	return *r.cluster.sharded.Load(), nil
}

// lookAgain is called after a failure. In a cluster it reloads the map from slots to masters,
// without blocking. Otherwise the client could send to a dead master for up to a minute.
func (r *Redis) lookAgain() {
	if r.cluster != nil {
		r.cluster.client.ReloadState(context.Background())
	}
}
