package projector

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
)

// Horizon is the oldest transaction in the Postgres cluster, in whichever
// database, that has written and has not ended. Events that were appended since
// it began to write cannot be folded before it ends: it might yet append one
// that comes before them.
type Horizon struct {
	// TransactionID is its id, without the epoch.
	TransactionID uint32
	// PID is its session, 0 for a prepared transaction, of which Prepared is the
	// name.
	PID      int
	Prepared string
	// What Postgres tells of the session; empty where the role may not know,
	// which pg_read_all_stats lets it.
	User, Database, Application, State, Query string
	// Age is how long ago it began, 0 where that may not be known.
	Age time.Duration
}

// horizonSQL finds the oldest transaction that holds the lock of an id of its
// own, as all do that have written: whoever has which is for everybody to see,
// other than the rest.
const horizonSQL = `SELECT l.transactionid::text::bigint, coalesce(l.pid, 0), coalesce(p.gid, ''),
       coalesce(a.usename, p.owner, ''), coalesce(a.datname, p.database, ''),
       coalesce(a.application_name, ''), coalesce(a.state, ''), coalesce(left(a.query, 500), ''),
       coalesce(extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, p.prepared)), 0)::double precision
FROM pg_locks AS l
LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
LEFT JOIN pg_prepared_xacts AS p ON p.transaction = l.transactionid
WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted
ORDER BY age(l.transactionid) DESC
LIMIT 1`

// OldestWriter returns the horizon; ok is false where nothing is being written.
func OldestWriter(ctx context.Context, q events.Querier) (h Horizon, ok bool, err error) {
	rows, err := q.Query(ctx, horizonSQL)
	if err != nil {
		return Horizon{}, false, fmt.Errorf("find the oldest transaction: %w", err)
	}
	var age float64
	tag, err := pgx.ForEachRow(rows, []any{
		&h.TransactionID, &h.PID, &h.Prepared, &h.User, &h.Database, &h.Application, &h.State, &h.Query, &age,
	}, func() error { return nil })
	if err != nil {
		return Horizon{}, false, fmt.Errorf("find the oldest transaction: %w", err)
	}
	h.Age = time.Duration(max(age, 0) * float64(time.Second))
	return h, tag.RowsAffected() > 0, nil
}

// oldHorizon is the age past which a horizon is logged, once a minute.
const oldHorizon = 5 * time.Second

// horizonWatch measures the horizon now and then.
type horizonWatch struct {
	id    uint32
	since time.Time // when the id was first seen
	warn  time.Time // not before
}

// look keeps the metric, and logs a horizon that is old. Where Postgres does
// not tell its age, it is how long it has been seen.
func (w *horizonWatch) look(ctx context.Context, p *Projector) {
	h, ok, err := OldestWriter(ctx, p.cfg.Pool)
	if err != nil {
		if ctx.Err() == nil {
			p.log.WarnContext(ctx, "cannot measure the horizon", "error", err)
		}
		return
	}
	now := time.Now()
	if !ok {
		h.TransactionID = 0
	}
	if h.TransactionID != w.id {
		*w = horizonWatch{id: h.TransactionID, since: now}
	}
	if !ok {
		p.metrics.horizonSeconds.Set(0)
		return
	}
	age := max(h.Age, now.Sub(w.since))
	p.metrics.horizonSeconds.Set(age.Seconds())
	if age > oldHorizon && now.After(w.warn) {
		w.warn = now.Add(time.Minute)
		p.log.WarnContext(ctx, "a transaction that has written and stays open keeps newer events from being folded",
			"age", age.Round(time.Millisecond), "pid", h.PID, "prepared", h.Prepared, "user", h.User, "database", h.Database,
			"application", h.Application, "state", h.State, "query", h.Query)
	}
}
