package projector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// watchSessionSQL has Postgres ask the host of the session, which says nothing,
// whether it is there: after 15 s, and then every 5 s. One that does not answer
// for 30 s, or takes nothing for as long of what is sent to it, has vanished. By
// itself Postgres would know after two hours, and the locks of the session would
// be kept until then. A statement rather than startup parameters, which poolers
// refuse. On Unix-domain sockets it does nothing.
const watchSessionSQL = `SELECT set_config('tcp_keepalives_idle', '15', false), set_config('tcp_keepalives_interval', '5', false),
    set_config('tcp_keepalives_count', '3', false), set_config('tcp_user_timeout', '30000', false)`

// OpenSession opens a session that is to hold locks, on a connection of its own:
// Postgres ends it within half a minute of its host vanishing. application is
// the application_name by which others can tell whose it is. cfg is changed.
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
