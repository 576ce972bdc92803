package follow

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/internal/pgsession"
)

const (
	// ownedPatience is how long servers may take to own what was switched: some seconds
	// if none that folds has heard of it.
	ownedPatience = 5 * time.Second
	// ownedPause is how often they are looked for.
	ownedPause = 5 * time.Millisecond
)

// Resumed begins to wait until projectors own partitions of a database, as they do when
// they have heard of a switch. wait returns how long after closed that was; 0 if there are
// no projectors, or they do not within some seconds. It must be called.
func Resumed(ctx context.Context, pool *pgxpool.Pool, closed time.Time, partitions ...int) (wait func() time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, ownedPatience)
	paused := make(chan time.Duration, 1)
	go func() {
		defer cancel()
		pause := time.NewTicker(ownedPause)
		defer pause.Stop()
		for {
			var owned int
			var members bool
			err := pool.QueryRow(ctx, statements.Get("owned"), pgsession.LockClass, partitions, pgsession.MemberClass).Scan(&owned, &members)
			switch {
			case err == nil && owned == len(partitions):
				paused <- time.Since(closed)
				return
			case err == nil && !members:
				paused <- 0
				return
			}
			select {
			case <-ctx.Done():
				paused <- 0
				return
			case <-pause.C:
			}
		}
	}()
	return func() time.Duration { return <-paused }
}
