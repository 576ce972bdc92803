package admin

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/archive"
	"github.com/badged/badged/projector/erasure"
	"github.com/badged/badged/projector/merging"
)

// EraseUser erases a user, also from the audit trail; see [erasure.Erase] and
// [RedactAudit]. files is the archive, nil for none. The trail records it, without the id.
func EraseUser(ctx context.Context, pool *pgxpool.Pool, log *events.Log, by Operator, userID string, files *archive.Archive) (done erasure.Erased, err error) {
	err = Audited(ctx, pool, by, "user.erase", struct{}{}, func(ctx context.Context) (any, error) {
		if done, err = erasure.Erase(ctx, erasure.Config{Pool: pool, Log: log, UserID: userID, Archive: files}); err != nil {
			return done, err
		}
		done.Actions, err = RedactAudit(ctx, pool, by, userID)
		return done, err
	})
	return done, err
}

// ErasedAgain is what EraseAgain has done.
type ErasedAgain struct {
	// Users were erased again, and of Gone badged held nothing.
	Users int `json:"users"`
	Gone  int `json:"gone"`
}

// EraseAgain erases the users who were erased according to the archive, while the database
// does not know that; see [erasure.FindLost] and [EraseUser].
func EraseAgain(ctx context.Context, pool *pgxpool.Pool, log *events.Log, by Operator, files *archive.Archive) (done ErasedAgain, err error) {
	cfg := erasure.Config{Pool: pool, Log: log, Archive: files}
	lost, err := erasure.FindLost(ctx, cfg)
	if err != nil {
		return done, err
	}
	for _, user := range lost.Users {
		if _, err := EraseUser(ctx, pool, log, by, user, files); err != nil {
			return done, err
		}
		done.Users++
	}
	done.Gone = len(lost.Gone)
	return done, lost.Forget(ctx, cfg)
}

// EraseHints erases a user from the hints of a database for other shards: see
// [erasure.EraseHints]. The trail records it if a hint may name the user.
func EraseHints(ctx context.Context, pool *pgxpool.Pool, by Operator, userID string) (done erasure.Erased, err error) {
	if named, err := erasure.HintsMayName(ctx, pool, userID); err != nil || !named {
		return done, err
	}
	err = Audited(ctx, pool, by, "user.erase", struct{}{}, func(ctx context.Context) (any, error) {
		done.Waiting, err = erasure.EraseHints(ctx, pool, userID)
		return done, err
	})
	return done, err
}

// mergeArguments are the arguments of a merge in the trail.
type mergeArguments struct {
	Guest string `json:"guest"`
	Into  string `json:"into"`
}

// MergeUser moves what is unread for a guest to an account, and records it in the audit
// trail; see [merging.Merge].
func MergeUser(ctx context.Context, by Operator, cfg merging.Config) (done merging.Merged, err error) {
	var arguments any = mergeArguments{cfg.Guest, cfg.Account}
	known, err := Known(ctx, cfg.Pool, cfg.Log, cfg.Guest)
	if err != nil {
		return done, err
	}
	if !known {
		arguments = NoUser{}
	}
	err = Audited(ctx, cfg.Pool, by, "user.merge", arguments, func(ctx context.Context) (any, error) {
		done, err = merging.Merge(ctx, cfg)
		return done, err
	})
	return done, err
}
