package projector

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// lockClass is the first key of the advisory locks by which partitions are
// owned; the second is the partition.
const lockClass = 0x62616467 // "badg"

// takeSQL takes the locks of those of the partitions that nobody owns.
const takeSQL = `SELECT p FROM unnest($1::int[]) AS p WHERE pg_try_advisory_lock($2, p) ORDER BY p`

// ApplicationName names a projector's ownership session in Postgres, so that
// the owner of a partition can be told from pg_locks.
func ApplicationName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("badged projector %s/%d", host, os.Getpid())
}

// own keeps a session that holds the locks of the partitions that this
// projector owns, and folds them while it does. An owner that dies loses its
// session and so its locks, and another takes over. The locks save work; that
// counts are right is the fence's doing.
func (p *Projector) own(ctx context.Context) error {
	backoff := firstBackoff
	for ctx.Err() == nil {
		start := time.Now()
		err := p.session(ctx)
		if ctx.Err() != nil {
			break
		}
		if time.Since(start) > lastBackoff {
			backoff = firstBackoff
		}
		p.log.WarnContext(ctx, "ownership session ended, partitions are given up",
			"error", err, "retry_in", backoff)
		select {
		case <-ctx.Done():
		case <-time.After(backoff):
		}
		backoff = min(2*backoff, lastBackoff)
	}
	return nil
}

// session owns partitions on one connection until ctx is done, whereupon it
// gives them up and returns nil, or the connection fails.
func (p *Projector) session(ctx context.Context) error {
	cfg := p.cfg.Pool.Config().ConnConfig
	cfg.RuntimeParams["application_name"] = ApplicationName()
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { // which also releases the locks, and says so at once
		closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closeCtx) // it may be broken already
	}()

	workCtx, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer func() { // before the connection closes
		stop()
		work.Wait()
		p.metrics.owned.Set(0)
	}()

	missing := make([]int, len(p.partitions))
	for i := range missing {
		missing[i] = i
	}
	tick := time.NewTicker(p.cfg.OwnershipInterval)
	defer tick.Stop()
	for {
		taken, err := p.take(ctx, conn, missing)
		if err != nil {
			return err
		}
		for _, id := range taken {
			work.Go(func() { p.partitions[id].run(workCtx) })
		}
		if len(taken) > 0 {
			missing = without(missing, taken)
			p.metrics.owned.Set(float64(len(p.partitions) - len(missing)))
			p.log.InfoContext(ctx, "owning partitions", "taken", taken, "not_owned", len(missing))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// take takes the locks that are free among those of partitions. With none to
// take it still finds out whether the session is alive.
func (p *Projector) take(ctx context.Context, conn *pgx.Conn, partitions []int) ([]int, error) {
	// A session that does not answer is as good as lost: others may have its
	// locks already.
	ctx, cancel := context.WithTimeout(ctx, 5*p.cfg.OwnershipInterval)
	defer cancel()
	rows, err := conn.Query(ctx, takeSQL, partitions, lockClass)
	if err != nil {
		return nil, fmt.Errorf("take partitions: %w", err)
	}
	taken, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return nil, fmt.Errorf("take partitions: %w", err)
	}
	return taken, nil
}

// without returns the elements of from that are not in taken; both ascend.
func without(from, taken []int) []int {
	rest := make([]int, 0, len(from)-len(taken))
	for _, id := range from {
		if len(taken) > 0 && taken[0] == id {
			taken = taken[1:]
			continue
		}
		rest = append(rest, id)
	}
	return rest
}
