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
	// ownedPause is the interval at which ownedAfter looks for the locks of the owners.
	ownedPause = 5 * time.Millisecond
)

// Resumed is called after the switch. It measures in the background when projectors own the given
// partitions of the target. The caller must call the returned function, which blocks until each
// partition has an owner, and sets Result.FoldingPaused to the time since the gate was closed. The
// time is 0 if no projector is connected, or if a partition has no owner within ownedPatience.
func (c *Copy) Resumed(ctx context.Context, target *Session, partitions ...int) (wait func()) {
	if c.Closed.IsZero() {
		return func() {}
	}
	took := make(chan time.Duration, 1)
	go func() { took <- ownedAfter(ctx, target.pool, c.Closed, partitions) }()
	return func() { c.Result.FoldingPaused = <-took }
}

// ownedAfter waits until projectors own the partitions, and returns the time since `closed`; 0 if
// no projector is connected, or if a partition has no owner within ownedPatience.
func ownedAfter(ctx context.Context, pool *pgxpool.Pool, closed time.Time, partitions []int) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, ownedPatience)
	defer cancel()
	for {
		var owned int
		var members bool
		err := pool.QueryRow(ctx, statements.Get("owned"), pgsession.LockClass, partitions, pgsession.MemberClass).Scan(&owned, &members)
		switch {
		case err == nil && owned == len(partitions):
			return time.Since(closed)
		case err == nil && !members, wait.For(ctx, ownedPause) != nil:
			return 0
		}
	}
}
