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

	"github.com/badged/badged/internal/pgsession"
)

// memberClass is the first key of the advisory locks of projector sessions;
// the second is the session's pid.
const memberClass = 0x6261646d // "badm"

// silentIntervals is how many intervals the session of an owner may be silent
// until Postgres ends it. Then others take the partitions of a host that
// vanished or a process that was stopped. The owner uses the same limit.
const silentIntervals = 3

// silenceSQL makes Postgres end the session after so many idle milliseconds.
const silenceSQL = `SELECT set_config('idle_session_timeout', $1, false)`

// joinSQL makes the session a member, under its own pid.
const joinSQL = `SELECT pg_advisory_lock($1, pg_backend_pid())`

// membersSQL counts the sessions that share the partitions, and those of them
// that come before this one. Advisory locks belong to a database, and pg_locks
// shows those of the whole cluster.
const membersSQL = `SELECT count(*), count(*) FILTER (WHERE pid < pg_backend_pid())
FROM pg_locks
WHERE locktype = 'advisory' AND granted AND objsubid = 2 AND classid = $1
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

const releaseSQL = `SELECT pg_advisory_unlock($1, p) FROM unnest($2::int[]) AS p`

// ApplicationName is the application_name of a projector's ownership session,
// which identifies the owner of a partition in pg_stat_activity.
func ApplicationName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("badged projector %s/%d", host, os.Getpid())
}

// own keeps a session that holds the locks of the owned partitions, and folds
// them while it lasts. An owner that dies loses its session and its locks, and
// others take over. The locks only save work; the fence keeps the counts
// right.
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
		p.log.WarnContext(ctx, "the ownership session ended; its partitions are given up",
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
// done or the connection fails. When ctx is done it gives them up and returns
// nil.
func (p *Projector) session(ctx context.Context) error {
	conn, err := pgsession.OpenSession(ctx, p.cfg.Pool.Config().ConnConfig, ApplicationName())
	if err != nil {
		return err
	}
	defer func() { // which also releases the locks
		closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closeCtx) // it may be broken already
	}()
	if _, err := conn.Exec(ctx, silenceSQL, strconv.FormatInt(p.silence.Milliseconds(), 10)); err != nil {
		return fmt.Errorf("set up the session: %w", err)
	}
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
	stopped chan struct{} // closed when the current batch is done
}

// rebalance gives up partitions above a fair share, or takes free ones below
// it. Its query also checks that the session is alive.
func (h *holdings) rebalance(ctx context.Context) error {
	// Treat a session that does not answer as lost: others may have its locks
	// already.
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

// fairShare returns how many partitions a member gets, given the number of
// members before it: an equal share, or one more.
func fairShare(partitions, members, before int) int {
	share := partitions / members
	if before < partitions%members {
		share++
	}
	return share
}

// take takes up to n free partitions and folds them until ctx is done.
func (h *holdings) take(ctx, queryCtx context.Context, n, members int) error {
	p := h.projector
	var missing []int
	for id := range p.partitions {
		if _, ok := h.held[id]; !ok {
			missing = append(missing, id)
		}
	}
	// Shuffle, so that projectors that take partitions at the same time try
	// different ones.
	rand.Shuffle(len(missing), func(i, j int) { missing[i], missing[j] = missing[j], missing[i] }) //nolint:gosec // spreads load, guards nothing
	rows, err := h.conn.Query(queryCtx, pgsession.TakeSQL, missing, pgsession.LockClass, n)
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
		workCtx, stop := context.WithCancel(ctx) //nolint:gosec // holdings.stop calls it
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

// release gives up n partitions, each after its current batch.
func (h *holdings) release(ctx context.Context, n, members int) error {
	ids := slices.Sorted(maps.Keys(h.held))
	rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] }) //nolint:gosec // spreads load, guards nothing
	ids = ids[:n]
	slices.Sort(ids)
	h.stop(ids)
	if _, err := h.conn.Exec(ctx, releaseSQL, pgsession.LockClass, ids); err != nil {
		return fmt.Errorf("give up partitions: %w", err)
	}
	h.projector.log.InfoContext(ctx, "giving up partitions for other projectors", "given_up", ids, "owned", len(h.held), "projectors", members)
	return nil
}

// drop stops folding all partitions.
func (h *holdings) drop() { h.stop(slices.Collect(maps.Keys(h.held))) }

// stop stops folding partitions and waits until they have stopped.
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
