package revocation

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/pg/pgsession"
)

const (
	// keepEnds is the age at which a row is deleted if it revokes no tokens, and only says whose
	// connections must end. So a process that could not read the table for less than keepEnds
	// reads the row afterwards. A row that revokes tokens is deleted keepEnds after these tokens
	// have expired.
	keepEnds = time.Hour
	// forgetRows is the maximum number of rows of each kind that one transaction deletes. If a
	// transaction has deleted rows, the next transaction follows after forgetPause.
	forgetRows  = 1000
	forgetPause = 500 * time.Millisecond
	// forgetRetry is the pause after an error.
	forgetRetry = time.Minute
)

// RunForgetting deletes, every hour until ctx is done, the rows that no process needs any more.
func (l *List) RunForgetting(ctx context.Context) error {
	for {
		pause := keepEnds
		more, err := l.forget(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			pause = forgetRetry
			l.cfg.Logger.WarnContext(ctx, "cannot delete old rows of badged.revocations; trying again in a minute", "error", err)
		case more:
			pause = forgetPause
		}
		if wait.For(ctx, pause) != nil {
			return nil
		}
	}
}

// forget deletes up to forgetRows of the oldest rows of each kind: rows without revoked tokens
// that are older than keepEnds, and rows whose revoked tokens have all expired. It reports whether
// there may be more such rows. If not, it also removes revocations of expired tokens from memory.
func (l *List) forget(ctx context.Context) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	now, err := pgsession.AgreedNow(ctx, l.pool)
	if err != nil {
		return false, err
	}
	type kind struct {
		sql string
		age time.Duration
	}
	kinds := []kind{{statements.Get("forget the ended"), keepEnds}}
	expired := l.cfg.MaxLifetime + keepEnds
	if l.cfg.MaxLifetime > 0 {
		kinds = append(kinds, kind{statements.Get("forget"), expired}, kind{statements.Get("forget the erased"), expired})
	}
	err = pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, statements.Get("hold up revocations")); err != nil {
			return err
		}
		for _, k := range kinds {
			deleted, err := tx.Exec(ctx, k.sql, k.age.Seconds(), forgetRows)
			if err != nil {
				return err
			}
			more = more || deleted.RowsAffected() > 0
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("delete old rows of badged.revocations and badged.erased_revocations: %w", err)
	}
	if more || l.cfg.MaxLifetime <= 0 {
		return more, nil
	}
	for _, t := range l.tables() {
		t.forget(now.Add(-expired))
	}
	return false, nil
}
