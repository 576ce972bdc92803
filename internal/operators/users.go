package operators

import (
	"context"
	"errors"
	"io"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/admin"
	"github.com/badged/badged/internal/shards"
	"github.com/badged/badged/projector/archive"
	"github.com/badged/badged/projector/deadletters"
	"github.com/badged/badged/projector/erasure"
	"github.com/badged/badged/projector/merging"
)

// Erase erases a user from every shard: others name the user as a sender, in dead
// letters, jobs and the audit trail. files opens the archive of a shard; it may be nil,
// and may return nil. If shards are away the user is erased from the others, and the
// error says which; erasing again completes it.
func Erase(ctx context.Context, c *shards.Cluster, by admin.Operator, userID string, files func(s *shards.Shard) (*archive.Archive, error)) (sum erasure.Erased, err error) {
	sum.Partition = c.PartitionOf(userID)
	present, _ := reachable(c)
	if c.Sharded() { // what waits on one may come to the log of any other
		err = EachOf(ctx, c, present, func(s *shards.Shard) error {
			done, err := admin.EraseHints(ctx, s.Pool, by, userID)
			sum.Add(done)
			return err
		})
	}
	return sum, errors.Join(err, Each(ctx, c, func(s *shards.Shard) error {
		var a *archive.Archive
		if files != nil {
			var err error
			if a, err = files(s); err != nil {
				return err
			}
			if a != nil {
				defer a.Close() // what was changed is synced already
			}
		}
		done, err := admin.EraseUser(ctx, s.Pool, s.Log, by, userID, a)
		sum.Add(done)
		return err
	}))
}

// Export writes everything that the shards hold of a user; see [erasure.Write]. archives
// are as in Erase. It writes nothing if a shard is away.
func Export(ctx context.Context, c *shards.Cluster, userID string, archives func(s *shards.Shard) (*archive.Archive, error), w io.Writer, found func(ctx context.Context) error) (done erasure.Exported, err error) {
	home, err := Of(c, userID)
	if err != nil {
		return done, err
	}
	if _, err := reachable(c); err != nil {
		return done, err
	}
	ordered := []*shards.Shard{home}
	for _, s := range c.Shards() {
		if s != home {
			ordered = append(ordered, s)
		}
	}
	var cfgs []erasure.ExportConfig
	for _, s := range ordered {
		cfg := erasure.ExportConfig{Pool: s.Pool, Log: s.Log, UserID: userID, Shard: s.Name}
		if archives != nil {
			if cfg.Archive, err = archives(s); err != nil {
				return done, inShard(s, err)
			}
		}
		cfgs = append(cfgs, cfg)
	}
	return erasure.Write(ctx, w, found, cfgs...)
}

// Merge moves what is unread for a guest to an account, also on another shard; see
// [admin.MergeUser]. It does nothing if one of both is away.
func Merge(ctx context.Context, c *shards.Cluster, by admin.Operator, guest, account string) (merging.Merged, error) {
	from, err := Of(c, guest)
	if err != nil {
		return merging.Merged{}, err
	}
	to, err := Of(c, account)
	if err != nil {
		return merging.Merged{}, err
	}
	return admin.MergeUser(ctx, by, merging.Config{
		Pool: from.Pool, Log: from.Log, Guest: guest, IntoPool: to.Pool, IntoLog: to.Log, Account: account,
	})
}

// RetryDeadLetter publishes a dead letter again. Of several shards, publish appends the
// events to those of their users before the letter is removed: if that is interrupted, it
// can be retried again, since repeated events count once.
func RetryDeadLetter(ctx context.Context, s *shards.Shard, publish events.Append, by admin.Operator, id int64) (events.Receipt, error) {
	letters := deadletters.New(s.Pool, s.Log)
	if s.Name != "" {
		letters = letters.PublishingTo(publish)
	}
	return admin.RetryDeadLetter(ctx, s.Pool, letters, by, id)
}
