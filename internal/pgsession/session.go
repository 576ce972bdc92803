// Package pgsession opens Postgres sessions that hold advisory locks, and
// locks tables without blocking other sessions for long.
package pgsession

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// watchSessionSQL makes Postgres probe the host of an idle session after 15 s,
// and then every 5 s. It ends the session if the host does not answer for 30
// s, or accepts no data for as long. By default Postgres notices after two
// hours, and keeps the locks until then. It is a statement because poolers
// refuse startup parameters. On Unix-domain sockets it does nothing.
const watchSessionSQL = `SELECT set_config('tcp_keepalives_idle', '15', false), set_config('tcp_keepalives_interval', '5', false),
    set_config('tcp_keepalives_count', '3', false), set_config('tcp_user_timeout', '30000', false)`

// OpenSession opens a session for holding locks, on its own connection.
// Postgres ends it within half a minute if its host vanishes. application is
// its application_name, which identifies it to others. It changes cfg.
func OpenSession(ctx context.Context, cfg *pgx.ConnConfig, application string) (*pgx.Conn, error) {
	cfg.RuntimeParams["application_name"] = application
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	if _, err := conn.Exec(ctx, watchSessionSQL); err != nil {
		closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		return nil, errors.Join(fmt.Errorf("set up the session: %w", err), conn.Close(closeCtx))
	}
	return conn, nil
}
