package copier

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/pg/pgsession"
)

const (
	// ownedPatience limits the wait, after a switch, until projectors own the partitions. A
	// projector that misses the notification of the switch needs seconds.
	ownedPatience = 5 * time.Second
	// ownedPause is the interval between checks of the owners' locks.
	ownedPause = 5 * time.Millisecond
)

// watchOwners measures in the background when projectors own partitions of a database after a
// switch. The caller must call paused, which blocks until each partition has an owner, and returns
// the time from closed until then. paused returns 0 if no projector is connected, or if not all
// partitions have an owner within ownedPatience.
func watchOwners(ctx context.Context, pool *pgxpool.Pool, closed time.Time, partitions ...int) (paused func() time.Duration) {
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
