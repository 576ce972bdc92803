package pgsession

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/base/wait"
)

// silenceSQL makes Postgres end the session after it was idle for $1 milliseconds.
const silenceSQL = `SELECT set_config('idle_session_timeout', $1, false)`

// joinSQL acquires the lock by which other sessions count this session. The first key is $1, the
// second key the pid of the session.
const joinSQL = `SELECT pg_advisory_lock($1, pg_backend_pid())`

// membersSQL counts the sessions that share the partitions, and how many of them have a smaller
// pid than this session. It filters by database, since pg_locks shows the advisory locks of all
// databases of the server.
const membersSQL = `SELECT count(*), count(*) FILTER (WHERE pid < pg_backend_pid())
FROM pg_locks
WHERE locktype = 'advisory' AND granted AND objsubid = 2 AND classid = $1
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

const releaseSQL = `SELECT pg_advisory_unlock($1, p) FROM unnest($2::int[]) AS p`

// Pauses between attempts to open the session.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 2 * time.Second
)

// ApplicationName returns the application_name of an owner's session in this process. It
// identifies the session in pg_stat_activity.
func ApplicationName(kind string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("badged %s %s/%d", kind, host, os.Getpid())
}

// Owner runs in each of several processes and divides partitions equally among them: a partition
// is owned by the process whose session holds its advisory lock. When a process dies, Postgres
// ends its session and releases its locks, and other processes acquire the locks. The locks only
// avoid double work: the work must remain correct if two processes own a partition at the same
// time. All fields except HeldChanged are required.
type Owner struct {
	// Connect is the configuration of the connection for the locks.
	Connect *pgx.ConnConfig
	// Kind is the role of the owners in names and log lines, such as "projector".
	Kind string
	// Class is the first key of the advisory locks on partitions; the second key is the partition.
	// MemberClass is the first key of the locks that count the sessions; the second key is the
	// session's pid.
	Class, MemberClass int
	// Held returns the partitions that are in the database. The owner releases partitions that
	// are no longer in the database.
	Held func() []int
	// HeldChanged, if not nil, returns a channel that is closed when the result of Held may have
	// changed. The owner then calls Held immediately, not at the end of the interval.
	HeldChanged func() <-chan struct{}
	// Interval is the pause between two checks. In each check, the owner counts the owners of its
	// class in all processes, and acquires or releases partitions until it has its fair share.
	Interval time.Duration
	// Silence is how long the owner's Postgres session may be idle before Postgres ends it. So if
	// this host vanishes or this process is suspended, other processes get the partitions of this
	// process. If a query takes longer than Silence, the owner ends its session itself.
	Silence time.Duration
	// Work is called in a new goroutine for each partition that the owner acquires. It must
	// return when its context is done.
	Work func(ctx context.Context, partition int)
	// Changed is called after each change of the owned partitions, with all owned partitions.
	Changed func(owned []int)
	Logger  *slog.Logger
}

// Run owns partitions until ctx is done. It opens a session that holds the locks, and calls Work
// for the owned partitions. If the session ends, Run stops the work and opens another session.
func (o *Owner) Run(ctx context.Context) {
	wait.Backoff{First: firstPause, Last: lastPause}.Retry(ctx, o.session, func(err error, pause time.Duration) {
		o.Logger.WarnContext(ctx, "the ownership session ended; its partitions are released",
			"of", o.Kind, "error", err, "retry_in", pause)
	})
}

// session opens one session and owns a fair share of the partitions until ctx is done or the
// session fails. Before it returns, it stops the work and closes the session, which releases the
// locks. It returns nil if ctx is done.
func (o *Owner) session(ctx context.Context) error {
	conn, err := OpenSession(ctx, o.Connect.Copy(), ApplicationName(o.Kind))
	if err != nil {
		return err
	}
	defer func() { // closing the session releases its locks
		closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closeCtx) // it may be broken already
	}()
	if _, err := conn.Exec(ctx, silenceSQL, strconv.FormatInt(o.Silence.Milliseconds(), 10)); err != nil {
		return fmt.Errorf("set up the session: %w", err)
	}
	if _, err := conn.Exec(ctx, joinSQL, o.MemberClass); err != nil {
		return fmt.Errorf("register as an owner: %w", err)
	}

	h := holdings{owner: o, conn: conn, held: map[int]holding{}}
	defer h.drop() // before the connection closes
	for {
		var changed <-chan struct{}
		if o.HeldChanged != nil {
			changed = o.HeldChanged()
		}
		if err := h.rebalance(ctx); err != nil {
			return err
		}
		if _, err := wait.Signal(ctx, changed, o.Interval); err != nil {
			return nil
		}
	}
}

// holdings are the partitions that a session owns.
type holdings struct {
	owner *Owner
	conn  *pgx.Conn
	held  map[int]holding
}

// holding is one owned partition.
type holding struct {
	stop    context.CancelFunc
	stopped chan struct{} // closed when Work has returned
}

// rebalance releases partitions if the session owns more than a fair share, and acquires free
// partitions if it owns less. Its first query also checks that Postgres has not ended the
// session.
func (h *holdings) rebalance(ctx context.Context) error {
	// If the session does not answer in time, treat it as ended: Postgres may have ended it, and
	// other processes may have acquired its locks.
	queryCtx, cancel := context.WithTimeout(ctx, h.owner.Silence)
	defer cancel()
	var members, before int
	if err := h.conn.QueryRow(queryCtx, membersSQL, h.owner.MemberClass).Scan(&members, &before); err != nil {
		return fmt.Errorf("count the owners: %w", err)
	}
	all := h.owner.Held()
	if gone := h.gone(all); len(gone) > 0 {
		if err := h.giveUp(queryCtx, gone); err != nil {
			return err
		}
		h.owner.Logger.InfoContext(ctx, "releasing partitions that are in another database, or were split", "as", h.owner.Kind, "given_up", gone, "owned", len(h.held))
	}
	share := fairShare(len(all), members, before)
	switch surplus := len(h.held) - share; {
	case surplus > 0:
		return h.release(queryCtx, surplus, members)
	case surplus < 0:
		return h.take(ctx, queryCtx, all, -surplus, members)
	}
	return nil
}

// gone returns the owned partitions that are not among all.
func (h *holdings) gone(all []int) (gone []int) {
	for id := range h.held {
		if !slices.Contains(all, id) {
			gone = append(gone, id)
		}
	}
	slices.Sort(gone)
	return gone
}

// fairShare returns the number of partitions for a member: partitions divided by members, rounded
// up for the members with the smallest pids and down for the rest, so that the shares add up to
// partitions. before is the number of members with smaller pids than this member.
func fairShare(partitions, members, before int) int {
	share := partitions / members
	if before < partitions%members {
		share++
	}
	return share
}

// take acquires the locks of up to n free partitions, and starts the work on these partitions.
// all has the partitions that are in the database.
func (h *holdings) take(ctx, queryCtx context.Context, all []int, n, members int) error {
	o := h.owner
	var missing []int
	for _, id := range all {
		if _, ok := h.held[id]; !ok {
			missing = append(missing, id)
		}
	}
	// Shuffle, so that owners that acquire partitions at the same time try different
	// partitions.
	rand.Shuffle(len(missing), func(i, j int) { missing[i], missing[j] = missing[j], missing[i] }) //nolint:gosec // spreads load, guards nothing
	rows, err := h.conn.Query(queryCtx, TakeSQL, missing, o.Class, n)
	if err != nil {
		return fmt.Errorf("acquire partitions: %w", err)
	}
	taken, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return fmt.Errorf("acquire partitions: %w", err)
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
			o.Work(workCtx, id)
		}()
	}
	h.changed()
	o.Logger.InfoContext(ctx, "owning partitions", "as", o.Kind, "taken", taken, "owned", len(h.held), "processes", members)
	return nil
}

// release stops the work on n partitions and releases their locks.
func (h *holdings) release(ctx context.Context, n, members int) error {
	ids := slices.Sorted(maps.Keys(h.held))
	rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] }) //nolint:gosec // spreads load, guards nothing
	ids = ids[:n]
	slices.Sort(ids)
	if err := h.giveUp(ctx, ids); err != nil {
		return err
	}
	h.owner.Logger.InfoContext(ctx, "releasing partitions for other processes", "as", h.owner.Kind, "given_up", ids, "owned", len(h.held), "processes", members)
	return nil
}

// giveUp stops the work on partitions and releases their locks.
func (h *holdings) giveUp(ctx context.Context, ids []int) error {
	h.stop(ids)
	if _, err := h.conn.Exec(ctx, releaseSQL, h.owner.Class, ids); err != nil {
		return fmt.Errorf("release partitions: %w", err)
	}
	return nil
}

// drop stops the work on all partitions.
func (h *holdings) drop() { h.stop(slices.Collect(maps.Keys(h.held))) }

// stop stops the work on partitions and waits until it has stopped.
func (h *holdings) stop(ids []int) {
	for _, id := range ids {
		h.held[id].stop()
	}
	for _, id := range ids {
		<-h.held[id].stopped
		delete(h.held, id)
	}
	h.changed()
}

func (h *holdings) changed() { h.owner.Changed(slices.Sorted(maps.Keys(h.held))) }
