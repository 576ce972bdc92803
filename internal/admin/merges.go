package admin

import (
	"context"

	"github.com/badged/badged/projector/merging"
)

// mergeArguments are the arguments of a merge in the trail.
type mergeArguments struct {
	Guest string `json:"guest"`
	Into  string `json:"into"`
}

// MergeUser moves what is unread for a guest to an account, and records it in the audit
// trail; see [merging.Merge].
func MergeUser(ctx context.Context, by Operator, cfg merging.Config) (done merging.Merged, err error) {
	err = Audited(ctx, cfg.Pool, by, "user.merge", mergeArguments{cfg.Guest, cfg.Account}, func(ctx context.Context) (any, error) {
		done, err = merging.Merge(ctx, cfg)
		return done, err
	})
	return done, err
}

// Merge moves what is unread for a guest to an account, and wakes their projectors; see
// [MergeUser].
func (s *Service) Merge(ctx context.Context, by Operator, guest, account string) (merging.Merged, error) {
	done, err := MergeUser(ctx, by, merging.Config{Pool: s.pool, Log: s.log, Guest: guest, Account: account})
	if done.Events > 0 {
		s.wake([]int{s.log.PartitionOf(guest), s.log.PartitionOf(account)})
	}
	return done, err
}
