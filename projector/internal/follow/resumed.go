package follow

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/internal/pgsession"
	"github.com/badged/badged/internal/wait"
)

const (
	// ownedPatience is how long servers may take to own what was switched: some seconds
	// if none that folds has heard of it.
	ownedPatience = 5 * time.Second
	// ownedPause is how often they are looked for.
	ownedPause = 5 * time.Millisecond
)

// Resumed begins to wait until projectors own partitions of a database, as they do when
// they have heard of a switch. paused returns how long after closed that was; 0 if there are
// no projectors, or they do not within some seconds. It must be called.
func Resumed(ctx context.Context, pool *pgxpool.Pool, closed time.Time, partitions ...int) (paused func() time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, ownedPatience)
	took := make(chan time.Duration, 1)
	go func() {
		defer cancel()
		for {
			var owned int
			var members bool
			err := pool.QueryRow(ctx, statements.Get("owned"), pgsession.LockClass, partitions, pgsession.MemberClass).Scan(&owned, &members)
			switch {
			case err == nil && owned == len(partitions):
				took <- time.Since(closed)
				return
			case err == nil && !members:
				took <- 0
				return
			}
			if wait.For(ctx, ownedPause) != nil {
				took <- 0
				return
			}
		}
	}()
	return func() time.Duration { return <-took }
}
