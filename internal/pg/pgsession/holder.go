package pgsession

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Holder describes an open transaction that may hold locks. The transaction belongs to a session,
// or it is a prepared transaction (two-phase commit), which belongs to no session and stays open
// until COMMIT PREPARED or ROLLBACK PREPARED.
type Holder struct {
	// PID and Application identify the session; 0 and "" for a prepared transaction.
	PID         int
	Application string
	// Prepared is the identifier given to PREPARE TRANSACTION, "" for a transaction of a session.
	Prepared string
	// Database is the name of the database in which the transaction runs.
	Database string
	// ID is the transaction id, "" if the transaction has written nothing.
	ID string
	// Since is the time at which the transaction began or was prepared. It is zero if the role
	// lacks the privilege to read this time.
	Since time.Time
	// Age is how long the transaction has been open by the clock of the database.
	Age time.Duration
}

// String names the transaction.
func (h Holder) String() string {
	if h.Prepared != "" {
		return fmt.Sprintf("the prepared transaction %q of database %s", h.Prepared, h.Database)
	}
	return fmt.Sprintf("%q (Postgres process %d)", cmp.Or(h.Application, "a session without an application_name"), h.PID)
}

// Open describes how long the transaction has been open.
func (h Holder) Open() string {
	if h.Since.IsZero() {
		return "open for a time that only pg_read_all_stats shows"
	}
	return fmt.Sprintf("open for %s", h.Age.Round(time.Second))
}

// Remedy describes how to end the transaction.
func (h Holder) Remedy() string {
	if h.Prepared != "" {
		return fmt.Sprintf("a prepared transaction does not end by itself: in database %s, run COMMIT PREPARED '%s' or ROLLBACK PREPARED '%[2]s', whichever its transaction manager decided", h.Database, h.Prepared)
	}
	return fmt.Sprintf("wait for it, or end it with SELECT pg_terminate_backend(%d)", h.PID)
}

// HolderColumns are the columns that scanHolder reads into a [Holder]. The query must provide a
// row a of pg_stat_activity and a row p of pg_prepared_xacts; one of the two rows is null.
const HolderColumns = `coalesce(a.pid, 0), coalesce(a.application_name, ''), coalesce(p.gid, ''), coalesce(p.database::text, a.datname::text, ''),
    coalesce(a.backend_xid, p.transaction)::text,
    coalesce(a.xact_start, p.prepared), coalesce(extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, p.prepared)), 0)::double precision`

// LocksSQL is a FROM and WHERE clause. It selects, as l, the locks in this database that other
// sessions or prepared transactions hold. It joins the rows a and p that HolderColumns needs. To
// find the prepared transaction p of a lock, it uses the lock that each transaction holds on its
// own id. The caller appends a condition on l.
const LocksSQL = `pg_locks AS l
LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
LEFT JOIN pg_locks AS t ON l.pid IS NULL AND t.pid IS NULL AND t.locktype = 'transactionid' AND t.virtualtransaction = l.virtualtransaction
LEFT JOIN pg_prepared_xacts AS p ON p.transaction = t.transactionid
WHERE l.granted AND l.pid IS DISTINCT FROM pg_backend_pid() AND (a.pid IS NOT NULL OR p.gid IS NOT NULL)
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())`

// oldestSQL selects one holder: the oldest prepared transaction, or if there is none, the oldest
// transaction of a session. Prepared transactions come first because often only an operator can
// end them.
const oldestSQL = ` ORDER BY p.gid IS NULL, coalesce(a.xact_start, p.prepared) LIMIT 1`

func scanHolder(row pgx.Row) (h Holder, err error) {
	var id *string
	var since *time.Time
	var age float64
	if err := row.Scan(&h.PID, &h.Application, &h.Prepared, &h.Database, &id, &since, &age); err != nil {
		return h, err
	}
	if id != nil {
		h.ID = *id
	}
	if since != nil {
		h.Since, h.Age = *since, time.Duration(age*float64(time.Second))
	}
	return h, nil
}

type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// FindHolder returns a transaction that holds a lock. condition is SQL about l, the row of the
// lock in pg_locks. FindHolder returns the oldest prepared transaction, or if there is none, the
// oldest transaction of a session. It skips transactions younger than 100 ms, because most of
// them end soon. ok is false if no transaction is found.
func FindHolder(ctx context.Context, q querier, condition string, args ...any) (h Holder, ok bool, err error) {
	h, err = scanHolder(q.QueryRow(ctx, `SELECT `+HolderColumns+` FROM `+LocksSQL+
		` AND coalesce(a.xact_start, p.prepared, '-infinity') < clock_timestamp() - interval '100 ms' AND `+condition+oldestSQL, args...))
	if errors.Is(err, pgx.ErrNoRows) {
		return h, false, nil
	}
	if err != nil {
		return h, false, fmt.Errorf("find the transaction that holds the tables: %w", err)
	}
	return h, true, nil
}

// StaysOpen is the age at which operators are warned about an open transaction.
const StaysOpen = 10 * time.Second

// OpenTransactions returns the transactions that have a transaction id and have been open for
// more than `longer`, or for a time that the role may not see. The oldest transaction id comes
// first. While a transaction is open, rows of the log with later transaction ids cannot be
// archived. All databases of a server share one sequence of transaction ids, so OpenTransactions
// returns the transactions of all databases.
func OpenTransactions(ctx context.Context, q querier, longer time.Duration) ([]Holder, error) {
	rows, _ := q.Query(ctx, `SELECT `+HolderColumns+`
FROM (SELECT * FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid()) AS a
FULL JOIN pg_prepared_xacts AS p ON false
WHERE coalesce(coalesce(a.xact_start, p.prepared) < clock_timestamp() - make_interval(secs => $1), true)
ORDER BY age(coalesce(a.backend_xid, p.transaction)) DESC`, longer.Seconds())
	open, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Holder, error) { return scanHolder(row) })
	if err != nil {
		return nil, fmt.Errorf("look for open transactions: %w", err)
	}
	return open, nil
}
