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

// OldestWriter returns the horizon; ok is false if no open transaction has
// written.
func OldestWriter(ctx context.Context, q events.Querier) (h Horizon, ok bool, err error) {
	rows, _ := q.Query(ctx, statements.Get("find the oldest writer"))
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
