package archiving

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/archive"
	"github.com/badged/badged/projector/internal/claims"
	"github.com/badged/badged/projector/rebuild"
)

// TakeOver makes an archive, opened by [archive.Continue], that of a database whose log it is
// of, whichever copy of the database wrote to it before. From then on others are refused. It
// fails with a [*rebuild.RunningError] while another job runs.
func TakeOver(ctx context.Context, pool *pgxpool.Pool, log *events.Log, a *archive.Archive) error {
	job, err := rebuild.NewJob(ctx, rebuild.Config{Pool: pool, Log: log}, "badged archive")
	if err != nil {
		return err
	}
	defer job.Close(ctx)
	return claims.TakeOver(ctx, job.Conn, a)
}

// Reseal encrypts the archive of a database again; see [archive.Reseal]. It fails if another
// copy of the database owns the archive.
func Reseal(ctx context.Context, q events.Querier, store archive.Sealed, resealed func(f archive.File)) error {
	return archive.Reseal(ctx, store, func(a *archive.Archive) error { return claims.Check(ctx, q, a) }, resealed)
}

// WantErased fails if an archive, which may be nil, knows of erasures that a database has not
// completed: it was restored to before them, or they were interrupted.
func WantErased(ctx context.Context, q events.Querier, a *archive.Archive) error {
	if a == nil {
		return nil
	}
	return claims.WantErased(ctx, q, a)
}
