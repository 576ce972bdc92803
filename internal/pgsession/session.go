// Package pgsession opens Postgres sessions that hold advisory locks, and
// locks tables without blocking other sessions for long.
//
// It does not know tables or what the locks protect. ADR 115 says why sessions set what
// they depend on.
package pgsession

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// watchSessionSQL makes Postgres probe the host of an idle session after 15 s,
// and then every 5 s. It ends the session if the host does not answer for 30
// s, or accepts no data for as long. By default Postgres notices after two
// hours, and keeps the locks until then. It is a statement because poolers
// refuse startup parameters. On Unix-domain sockets it does nothing. What holds locks sets a
// lock_timeout where it waits for others.
const watchSessionSQL = `SELECT set_config('tcp_keepalives_idle', '15', false), set_config('tcp_keepalives_interval', '5', false),
    set_config('tcp_keepalives_count', '3', false), set_config('tcp_user_timeout', '30000', false), set_config('lock_timeout', '0', false)`

// OpenSession opens a session for holding locks, on its own connection.
// Postgres ends it within half a minute if its host vanishes. application is
// its application_name, which identifies it to others. It changes cfg.
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

// Watch makes Postgres end a session within half a minute if its host vanishes.
func Watch(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, watchSessionSQL); err != nil {
		return fmt.Errorf("set up the session: %w", err)
	}
	return nil
}

// CloseSession releases the locks of a session and closes it, also if ctx is
// done.
func CloseSession(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	// Unlock first: the session ends a moment after the connection. The
	// connection may be broken already, so errors do not matter.
	_, _ = conn.Exec(ctx, `SELECT pg_advisory_unlock_all()`)
	_ = conn.Close(ctx)
}
