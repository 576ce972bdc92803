package shards

import (
	"context"
	"time"

	"github.com/badged/badged/projector/moving"
)

// CompleteMoves makes shards hold the partitions that a move gave to them, if the mover was
// killed between the commits of the two shards, until ctx is done. It asks the shards only
// while one that can be reached does not hold what the map gives to it. Every process may
// run it.
func (c *Cluster) CompleteMoves(ctx context.Context) error {
	var all []moving.Shard
	for _, s := range c.shards {
		all = append(all, moving.Shard{Name: s.Name, Pool: s.Pool, Log: s.Log})
	}
	told := map[int]string{}
	for ctx.Err() == nil {
		changed := c.Changed()
		var again <-chan time.Time
		for _, p := range c.Away() {
			if s := c.ShardOf(p); s == nil || s.Err() != nil {
				continue
			}
			again = time.After(c.cfg.Interval)
			c.completeMove(ctx, all, p, told)
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-again:
		}
	}
	return nil
}

// completeMove completes the move of a partition. told has the last logged error of each partition.
func (c *Cluster) completeMove(ctx context.Context, all []moving.Shard, partition int, told map[int]string) {
	ctx, cancel := context.WithTimeout(ctx, 2*c.cfg.Patience)
	defer cancel()
	done, is, err := moving.Complete(ctx, all, partition)
	switch {
	case err != nil && ctx.Err() == nil && told[partition] != err.Error():
		told[partition] = err.Error()
		c.cfg.Logger.WarnContext(ctx, "cannot complete the move of a partition, which takes no events meanwhile; trying again", "partition", partition, "error", err)
	case err == nil && is:
		delete(told, partition)
		c.cfg.Logger.InfoContext(ctx, "completed the move of a partition between the commits of the two shards; if its command was interrupted, run badged partition move again to delete the old rows",
			"partition", partition, "from", done.From, "to", done.To)
		_ = c.Reload(ctx) // Run reads the maps soon, too
	}
}
