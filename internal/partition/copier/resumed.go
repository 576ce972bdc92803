package copier

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/pg/pgsession"
)

const (
	// ownedPatience limits the wait, after a switch, until projectors own the new partitions. A
	// notification tells projectors of the switch. A projector that misses it needs seconds to
	// find the partitions.
	ownedPatience = 5 * time.Second
	// ownedPause is the interval at which watchOwners looks for the locks of the owners.
	ownedPause = 5 * time.Millisecond
)

// watchOwners measures how long it takes after a switch until projectors own the partitions. It
// measures in the background. The caller must call the returned function: it blocks until each
// partition has an owner, and returns the time from `closed`, when the gate was closed, until then.
// The function returns 0 if no projector is connected, or if some partition has no owner within
// ownedPatience.
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
