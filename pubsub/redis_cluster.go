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
	// answered, and then never changes, since the publishers and listeners of all processes
	// must agree on it.
	sharded atomic.Pointer[bool]
}

// sharded reports whether Redis is a cluster with sharded pub/sub. There, a single shard serves
// a channel: the shard to which the channel's name hashes. The first call asks the master of
// the given channel.
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

// lookAgain reloads the map of a cluster's slots after a failure. Without it, the client could
// use a dead master for up to a minute. It does not block.
func (r *Redis) lookAgain() {
	if r.cluster != nil {
		r.cluster.client.ReloadState(context.Background())
	}
}
