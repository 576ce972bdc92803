package admin

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/archive"
	"github.com/badged/badged/projector/erasure"
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

// Erase erases a user, unless a part of the log is archived; see [EraseUser].
func (s *Service) Erase(ctx context.Context, by Operator, userID string) (erasure.Erased, error) {
	return EraseUser(ctx, s.pool, s.log, by, userID, nil)
}
