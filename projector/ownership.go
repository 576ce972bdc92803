package projector

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// First keys of advisory locks. Of lockClass the second is a partition, and
// whoever holds the lock owns it; of memberClass it is the session of a
// projector that is there to own some.
const (
	lockClass   = 0x62616467 // "badg"
	memberClass = 0x6261646d // "badm"
)

// silentIntervals is how many intervals the session of an owner may be silent
// until Postgres ends it, so that the partitions of a host that vanished, or of a
// process that was stopped, go to others. The owner gives itself as long.
const silentIntervals = 3

// joinSQL makes the session a member; its pid is nobody else's.
const joinSQL = `SELECT pg_advisory_lock($1, pg_backend_pid())`

// membersSQL counts the sessions that share the partitions, and those of them
// that come before this one. Advisory locks belong to a database, and there may
// be others in the cluster.
const membersSQL = `SELECT count(*), count(*) FILTER (WHERE pid < pg_backend_pid())
FROM pg_locks
WHERE locktype = 'advisory' AND granted AND objsubid = 2 AND classid = $1
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

// takeSQL takes the locks of up to $3 of the partitions that nobody owns. It
// looks at one after the other and stops when it has enough.
const takeSQL = `SELECT p FROM unnest($1::int[]) AS p WHERE pg_try_advisory_lock($2, p) LIMIT $3`

const releaseSQL = `SELECT pg_advisory_unlock($1, p) FROM unnest($2::int[]) AS p`

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
// session and so its locks, and others take over. The locks save work; that
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

// session owns a fair share of the partitions on one connection until ctx is
// done, whereupon it gives them up and returns nil, or the connection fails.
func (p *Projector) session(ctx context.Context) error {
	cfg := p.cfg.Pool.Config().ConnConfig
	cfg.RuntimeParams["idle_session_timeout"] = strconv.FormatInt(p.silence.Milliseconds(), 10)
	conn, err := OpenSession(ctx, cfg, ApplicationName())
	if err != nil {
		return err
	}
	defer func() { // which also releases the locks
		closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closeCtx) // it may be broken already
	}()
	if _, err := conn.Exec(ctx, joinSQL, memberClass); err != nil {
		return fmt.Errorf("join the projectors: %w", err)
	}

	h := holdings{projector: p, conn: conn, held: map[int]holding{}}
	defer h.drop() // before the connection closes
	tick := time.NewTicker(p.cfg.OwnershipInterval)
	defer tick.Stop()
	for {
		if err := h.rebalance(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// holdings are the partitions that a session owns.
type holdings struct {
	projector *Projector
	conn      *pgx.Conn
	held      map[int]holding
}

// holding is a partition being folded.
type holding struct {
	stop    context.CancelFunc
	stopped chan struct{} // closed when the batch at hand is done
}

// rebalance gives up what is above a fair share of the partitions, and takes
// what is free below it. With nothing to do it still finds out whether the
// session is alive.
func (h *holdings) rebalance(ctx context.Context) error {
	// A session that does not answer is as good as lost: others may have its
	// locks already.
	queryCtx, cancel := context.WithTimeout(ctx, h.projector.silence)
	defer cancel()
	var members, before int
	if err := h.conn.QueryRow(queryCtx, membersSQL, memberClass).Scan(&members, &before); err != nil {
		return fmt.Errorf("count the projectors: %w", err)
	}
	all := len(h.projector.partitions)
	share := fairShare(all, members, before)
	switch surplus := len(h.held) - share; {
	case surplus > 0:
		return h.release(queryCtx, surplus, members)
	case surplus < 0:
		return h.take(ctx, queryCtx, -surplus, members)
	}
	return nil
}

// fairShare returns how many of so many partitions the member behind so many
// others gets: as many as each other, or one more.
func fairShare(partitions, members, before int) int {
	share := partitions / members
	if before < partitions%members {
		share++
	}
	return share
}

// take takes up to n partitions that are free, and begins to fold them until
// ctx is done.
func (h *holdings) take(ctx, queryCtx context.Context, n, members int) error {
	p := h.projector
	var missing []int
	for id := range p.partitions {
		if _, ok := h.held[id]; !ok {
			missing = append(missing, id)
		}
	}
	// Those who take at the same time should not run after the same ones.
	rand.Shuffle(len(missing), func(i, j int) { missing[i], missing[j] = missing[j], missing[i] }) //nolint:gosec // spreads load, guards nothing
	rows, err := h.conn.Query(queryCtx, takeSQL, missing, lockClass, n)
	if err != nil {
		return fmt.Errorf("take partitions: %w", err)
	}
	taken, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return fmt.Errorf("take partitions: %w", err)
	}
	if len(taken) == 0 {
		return nil
	}
	slices.Sort(taken)
	for _, id := range taken {
		workCtx, stop := context.WithCancel(ctx) //nolint:gosec // whoever stops the holding calls it
		hold := holding{stop, make(chan struct{})}
		h.held[id] = hold
		go func() {
			defer close(hold.stopped)
			p.partitions[id].run(workCtx)
		}()
	}
	p.metrics.own(h.held)
	p.log.InfoContext(ctx, "owning partitions", "taken", taken, "owned", len(h.held), "projectors", members)
	return nil
}

// release gives up n partitions, each after the batch at hand.
func (h *holdings) release(ctx context.Context, n, members int) error {
	ids := slices.Sorted(maps.Keys(h.held))
	rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] }) //nolint:gosec // spreads load, guards nothing
	ids = ids[:n]
	slices.Sort(ids)
	h.stop(ids)
	if _, err := h.conn.Exec(ctx, releaseSQL, lockClass, ids); err != nil {
		return fmt.Errorf("give up partitions: %w", err)
	}
	h.projector.log.InfoContext(ctx, "giving up partitions for other projectors", "given_up", ids, "owned", len(h.held), "projectors", members)
	return nil
}

// drop stops folding everything.
func (h *holdings) drop() { h.stop(slices.Collect(maps.Keys(h.held))) }

// stop stops folding partitions, and returns when that is done.
func (h *holdings) stop(ids []int) {
	for _, id := range ids {
		h.held[id].stop()
	}
	for _, id := range ids {
		<-h.held[id].stopped
		delete(h.held, id)
	}
	h.projector.metrics.own(h.held)
}
