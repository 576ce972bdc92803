package lag

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
)

// Horizon is the oldest open transaction in the Postgres cluster, in any
// database, that has written. Events appended after its first write cannot be
// folded before it ends: it might still append an event that comes before
// them.
type Horizon struct {
	// TransactionID is its id, without the epoch.
	TransactionID uint32
	// PID is its session. It is 0 for a prepared transaction, which Prepared
	// names.
	PID      int
	Prepared string
	// About the session; empty unless the role has pg_read_all_stats. Its query
	// is left out: it may belong to another database and contain anything.
	User, Database, Application, State string
	// Age is the time since it began, 0 if the role may not know.
	Age time.Duration
}

// horizonSQL finds the oldest transaction that holds the lock on its own id,
// as all do that have written. pg_locks is visible to every role, the rest is
// not.
const horizonSQL = `SELECT l.transactionid::text::bigint, coalesce(l.pid, 0), coalesce(p.gid, ''),
       coalesce(a.usename, p.owner, ''), coalesce(a.datname, p.database, ''),
       coalesce(a.application_name, ''), coalesce(a.state, ''),
       coalesce(extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, p.prepared)), 0)::double precision
FROM pg_locks AS l
LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
LEFT JOIN pg_prepared_xacts AS p ON p.transaction = l.transactionid
WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted
ORDER BY age(l.transactionid) DESC
LIMIT 1`

// OldestWriter returns the horizon; ok is false if no open transaction has
// written.
func OldestWriter(ctx context.Context, q events.Querier) (h Horizon, ok bool, err error) {
	rows, err := q.Query(ctx, horizonSQL)
	if err != nil {
		return Horizon{}, false, fmt.Errorf("find the oldest transaction: %w", err)
	}
	var age float64
	tag, err := pgx.ForEachRow(rows, []any{
		&h.TransactionID, &h.PID, &h.Prepared, &h.User, &h.Database, &h.Application, &h.State, &age,
	}, func() error { return nil })
	if err != nil {
		return Horizon{}, false, fmt.Errorf("find the oldest transaction: %w", err)
	}
	h.Age = time.Duration(max(age, 0) * float64(time.Second))
	return h, tag.RowsAffected() > 0, nil
}
