package pgsession

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Limit is a limit on simultaneous connections (Max), and the number of open connections to
// which the limit applies (Used).
type Limit struct {
	// Name is the object that has the limit, as in "the role badged". Setting is the statement
	// or the setting with which an operator raises the limit.
	Name, Setting string
	Max, Used     int
	// Shared is true if Used includes connections to other databases of the server.
	Shared bool
}

// String describes the limit as a sentence without its full stop.
func (l Limit) String() string {
	return fmt.Sprintf("%s permits %d connections, and %d are open", l.Name, l.Max, l.Used)
}

// limitsSQL returns the limits of the role, the database and the server. For a superuser it
// returns only the limit of the server, since Postgres does not apply the other limits to
// superusers. The connection that runs limitsSQL is not counted.
const limitsSQL = `WITH s AS (SELECT usesysid, datid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid())
SELECT 'the role ' || rolname, format('ALTER ROLE %I CONNECTION LIMIT …', rolname), rolconnlimit, (SELECT count(*) FROM s WHERE usesysid = r.oid), true
FROM pg_roles AS r WHERE rolname = session_user AND rolconnlimit >= 0 AND NOT rolsuper
UNION ALL
SELECT 'the database ' || datname, format('ALTER DATABASE %I CONNECTION LIMIT …', datname), datconnlimit, (SELECT count(*) FROM s WHERE datid = d.oid), false
FROM pg_database AS d WHERE datname = current_database() AND datconnlimit >= 0 AND NOT (SELECT rolsuper FROM pg_roles WHERE rolname = session_user)
UNION ALL
SELECT 'the server', 'max_connections', current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
    - coalesce(nullif(current_setting('reserved_connections', true), '')::int, 0), (SELECT count(*) FROM s), true`

// Limits returns the limits on connections of a session's role to its database.
func Limits(ctx context.Context, conn *pgx.Conn) ([]Limit, error) {
	rows, _ := conn.Query(ctx, limitsSQL)
	limits, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Limit])
	if err != nil {
		return nil, fmt.Errorf("read how many connections are permitted: %w", err)
	}
	return limits, nil
}
