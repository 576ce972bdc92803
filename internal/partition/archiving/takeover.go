package archiving

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/partition/archive"
	"github.com/badged/badged/internal/partition/claims"
	"github.com/badged/badged/internal/partition/rebuild"
)

// TakeOver makes a database the owner of an archive of its log, even if another copy of the
// database owns the archive. From then on, writes by other copies fail with a [*claims.CopyError].
// The archive must have been opened with [archive.Continue]. TakeOver fails with a
// [*rebuild.RunningError] while another job runs in the database.
func TakeOver(ctx context.Context, pool *pgxpool.Pool, log *events.Log, a *archive.Archive) error {
	job, err := rebuild.NewJob(ctx, rebuild.Config{Pool: pool, Log: log}, "badged archive")
	if err != nil {
		return err
	}
	defer job.Close(ctx)
	return claims.TakeOver(ctx, job.Conn, a)
}

// Reseal encrypts the archive of a database with the first of its keys; see [archive.Reseal]. It
// fails with a [*claims.CopyError] if another copy of the database owns the archive.
func Reseal(ctx context.Context, q events.Querier, store archive.Sealed, resealed func(f archive.File)) error {
	return archive.Reseal(ctx, store, func(a *archive.Archive) error { return claims.Check(ctx, q, a) }, resealed)
}
