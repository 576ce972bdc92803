package pubsub

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// redisCluster is what is known of a cluster.
type redisCluster struct {
	client *redis.ClusterClient
	// sharded says whether the cluster has sharded pub/sub, nil while nobody
	// could be asked. Publishers and listeners of all processes must agree on
	// it, and so it is found out once.
	sharded atomic.Pointer[bool]
}

// sharded says whether channels are served by the shard that their names hash to,
// with commands of their own. It asks the master of channel where nobody was
// asked yet.
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

// lookAgain has the client of a cluster ask where the slots are: after any
// failure they may be somewhere else, and it would go on asking a master that is
// dead for a minute. It does not wait.
func (r *Redis) lookAgain() {
	if r.cluster != nil {
		r.cluster.client.ReloadState(context.Background())
	}
}
