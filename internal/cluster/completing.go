package cluster

import (
	"context"
	"time"

	"github.com/badged/badged/internal/partition/moving"
)

// CompleteMoves runs until ctx is done and then returns nil. It completes each move whose process
// was killed after the commit in one database and before the commit in the other. It queries the
// databases only while a reachable database does not hold a partition that the map assigns to it.
// Several processes may run CompleteMoves at the same time.
func (c *Cluster) CompleteMoves(ctx context.Context) error {
	var all []moving.Database
	for _, s := range c.databases {
		all = append(all, moving.Database{Name: s.Name, Pool: s.Pool, Log: s.Log})
	}
	logged := map[int]string{}
	for ctx.Err() == nil {
		changed := c.Changed()
		var again <-chan time.Time
		for _, p := range c.Away() {
			if s := c.DatabaseOf(p); s == nil || s.Err() != nil {
				continue
			}
			again = time.After(c.cfg.Interval)
			c.completeMove(ctx, all, p, logged)
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-again:
		}
	}
	return nil
}

// completeMove completes the move of a partition if the move was interrupted between its two
// commits. logged maps partitions to their last logged error, so that repeated errors are not
// logged again.
func (c *Cluster) completeMove(ctx context.Context, all []moving.Database, partition int, logged map[int]string) {
	ctx, cancel := context.WithTimeout(ctx, 2*c.cfg.Patience)
	defer cancel()
	done, is, err := moving.Complete(ctx, all, partition)
	switch {
	case err != nil && ctx.Err() == nil && logged[partition] != err.Error():
		logged[partition] = err.Error()
		c.cfg.Logger.WarnContext(ctx, "cannot complete the move of a partition, which accepts no events meanwhile; trying again", "partition", partition, "error", err)
	case err == nil && is:
		delete(logged, partition)
		c.cfg.Logger.InfoContext(ctx, "completed the move of a partition between the commits of the two databases; if its command was interrupted, run badged partition move again to delete the old rows",
			"partition", partition, "from", done.From, "to", done.To)
		_ = c.Reload(ctx) // Run reads the maps soon, too
	}
}
