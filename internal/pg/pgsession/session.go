// Package pgsession opens Postgres sessions that hold advisory locks, divides partitions among
// processes by such locks (Owner), and locks tables without blocking other sessions for long.
//
// The package does not know which tables it locks, or what the locks protect. ADR 115 explains
// why each session sets the settings on which badged depends.
package pgsession

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// watchSessionSQL makes Postgres probe the host of an idle session after 15 s, and then every 5 s.
// Postgres ends the session if the host does not answer for 30 s, or accepts no data for 30 s. By
// default Postgres detects a vanished host only after two hours, and the session of that host holds
// its locks until then. A statement sets the settings because poolers refuse startup parameters.
// The TCP settings have no effect on Unix-domain sockets. lock_timeout is off: a session that holds
// locks sets a limit only for statements that wait for other sessions.
const watchSessionSQL = `SELECT set_config('tcp_keepalives_idle', '15', false), set_config('tcp_keepalives_interval', '5', false),
    set_config('tcp_keepalives_count', '3', false), set_config('tcp_user_timeout', '30000', false), set_config('lock_timeout', '0', false)`

// OpenSession opens a session for holding locks, on a new connection. If the host of this process
// vanishes, Postgres ends the session within half a minute. application is the application_name,
// which identifies the session in pg_stat_activity. OpenSession changes cfg.
func OpenSession(ctx context.Context, cfg *pgx.ConnConfig, application string) (*pgx.Conn, error) {
	cfg.RuntimeParams["application_name"] = application
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	if err := Watch(ctx, conn); err != nil {
		CloseSession(ctx, conn)
		return nil, err
	}
	return conn, nil
}

// Watch makes Postgres end a session within half a minute if the host of this process vanishes.
func Watch(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, watchSessionSQL); err != nil {
		return fmt.Errorf("set up the session: %w", err)
	}
	return nil
}

// CloseSession releases the advisory locks of a session and closes its connection, even if ctx is
// done.
func CloseSession(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	// Unlock first: Postgres ends the session some time after the connection closes. Ignore
	// errors: the connection may already be broken.
	_, _ = conn.Exec(ctx, `SELECT pg_advisory_unlock_all()`)
	_ = conn.Close(ctx)
}
