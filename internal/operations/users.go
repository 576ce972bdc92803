package operations

import (
	"context"
	"errors"
	"io"

	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/partition/archive"
	"github.com/badged/badged/internal/user/erasure"
	"github.com/badged/badged/internal/user/merging"
	"github.com/badged/badged/projector/badges"
)

// Archives opens the archive of a database. It returns nil if the database has no archive. If the
// function itself is nil, no database has an archive.
type Archives func(s *cluster.Database) (*archive.Archive, error)

// Known reports whether the tables of a database have rows of a user.
func Known(ctx context.Context, s *cluster.Database, userID string) (bool, error) {
	all, err := badges.NewReader(s.Pool, s.Log).Badges(ctx, []string{userID})
	if err != nil {
		return false, err
	}
	return all[0].Version > 0, nil
}

// Erase erases a user from every database: each database may name the user as a sender of messages,
// and in its dead letters, jobs and audit trail. If some databases are unavailable, Erase erases
// the user from the others and returns a [*cluster.PartialFailure]; call it again later to complete
// the erasure. The audit trail records the erasure without the id of the user.
func (o *Operations) Erase(ctx context.Context, operator Operator, userID string, archives Archives) (sum erasure.Erased, err error) {
	c := o.cfg.Cluster
	sum.Partition = c.PartitionOf(userID)
	// Erase hints first. Otherwise a database could replay a hint that names the user into a log
	// from which the user is already erased.
	present, _ := c.Present()
	hints := c.EachOf(ctx, present, func(s *cluster.Database) error {
		done, err := eraseHints(ctx, s, operator, userID)
		sum.Add(done)
		return err
	})
	return sum, errors.Join(hints, c.Each(ctx, func(s *cluster.Database) error {
		var a *archive.Archive
		if archives != nil {
			var err error
			if a, err = archives(s); err != nil {
				return err
			}
			if a != nil {
				defer a.Close() // all changes are synced already
			}
		}
		done, err := eraseUser(ctx, s, operator, userID, a)
		sum.Add(done)
		return err
	}))
}

// eraseUser erases a user from a database and its audit trail; see [erasure.Erase] and
// [RedactAudit].
func eraseUser(ctx context.Context, s *cluster.Database, operator Operator, userID string, files *archive.Archive) (done erasure.Erased, err error) {
	err = Audited(ctx, s.Pool, operator, "user.erase", struct{}{}, func(ctx context.Context) (any, error) {
		if done, err = erasure.Erase(ctx, erasure.Config{Pool: s.Pool, Log: s.Log, UserID: userID, Archive: files}); err != nil {
			return done, err
		}
		done.Actions, err = RedactAudit(ctx, s.Pool, operator, userID)
		return done, err
	})
	return done, err
}

// eraseHints erases a user from the hints of a database, which are messages that this database
// stores for databases that are unavailable. See [erasure.EraseHints]. The trail records the
// erasure only if a hint may name the user.
func eraseHints(ctx context.Context, s *cluster.Database, operator Operator, userID string) (done erasure.Erased, err error) {
	if named, err := erasure.HintsMayName(ctx, s.Pool, userID); err != nil || !named {
		return done, err
	}
	err = Audited(ctx, s.Pool, operator, "user.erase", struct{}{}, func(ctx context.Context) (any, error) {
		done.Waiting, err = erasure.EraseHints(ctx, s.Pool, userID)
		return done, err
	})
	return done, err
}

// ErasedAgain is the result of EraseAgain.
type ErasedAgain struct {
	// Users counts the users that were erased again. Gone counts the erasures that the archive
	// lists and whose users have no data.
	Users int `json:"users"`
	Gone  int `json:"gone"`
}

// EraseAgain repeats the erasures that the archive lists but that the database does not record, for
// example after the restore of a backup; see [erasure.FindLost].
func EraseAgain(ctx context.Context, s *cluster.Database, operator Operator, files *archive.Archive) (done ErasedAgain, err error) {
	cfg := erasure.Config{Pool: s.Pool, Log: s.Log, Archive: files}
	lost, err := erasure.FindLost(ctx, cfg)
	if err != nil {
		return done, err
	}
	for _, user := range lost.Users {
		if _, err := eraseUser(ctx, s, operator, user, files); err != nil {
			return done, err
		}
		done.Users++
	}
	done.Gone = len(lost.Gone)
	return done, lost.Forget(ctx, cfg)
}

// Export writes all data of a user in all databases to w; see [erasure.Write]. If a database is not
// available, it writes nothing. At most maxExports exports run at a time; further exports wait.
func (o *Operations) Export(ctx context.Context, userID string, archives Archives, w io.Writer, found func(ctx context.Context) error) (done erasure.Exported, err error) {
	select {
	case o.exports <- struct{}{}:
		defer func() { <-o.exports }()
	case <-ctx.Done():
		return done, context.Cause(ctx)
	}
	home, err := o.cfg.Cluster.HomeOf(userID)
	if err != nil {
		return done, err
	}
	all, err := o.cfg.Cluster.Present()
	if err != nil {
		return done, err
	}
	var cfgs []erasure.ExportConfig
	for _, s := range all {
		cfg := erasure.ExportConfig{Pool: s.Pool, Log: s.Log, UserID: userID, Shard: s.Name}
		if archives != nil {
			if cfg.Archive, err = archives(s); err != nil {
				return done, s.Wrap(err)
			}
		}
		if s == home { // the home database comes first in the export
			cfgs = append([]erasure.ExportConfig{cfg}, cfgs...)
		} else {
			cfgs = append(cfgs, cfg)
		}
	}
	return erasure.Write(ctx, w, found, cfgs...)
}

// mergeArguments has the arguments that the trail records for a merge.
type mergeArguments struct {
	Guest string `json:"guest"`
	Into  string `json:"into"`
}

// Merge moves the unread messages of a guest to an account, and wakes the projectors of both users;
// see [merging.Merge]. The two users may be in different databases. If one of these databases is
// not available, Merge changes nothing and fails.
func (o *Operations) Merge(ctx context.Context, operator Operator, guest, account string) (done merging.Merged, err error) {
	c := o.cfg.Cluster
	from, err := c.HomeOf(guest)
	if err != nil {
		return done, err
	}
	into, err := c.HomeOf(account)
	if err != nil {
		return done, err
	}
	var arguments any = mergeArguments{guest, account}
	known, err := Known(ctx, from, guest)
	if err != nil {
		return done, err
	}
	if !known {
		arguments = NoUser{}
	}
	err = Audited(ctx, from.Pool, operator, "user.merge", arguments, func(ctx context.Context) (any, error) {
		done, err = merging.Merge(ctx, merging.Config{
			Pool: from.Pool, Log: from.Log, Guest: guest, IntoPool: into.Pool, IntoLog: into.Log, Account: account,
		})
		return done, err
	})
	if done.Events > 0 {
		o.cfg.Wake([]int{c.PartitionOf(guest), c.PartitionOf(account)})
	}
	return done, err
}
