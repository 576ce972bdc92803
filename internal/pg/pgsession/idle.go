package pgsession

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// trusted is how long an unused connection is not pinged if the server has sent nothing on it.
const trusted = time.Second

// CheckIdle makes a pool ping a connection before use if the server may have ended it while it
// was unused: by idle_session_timeout, a restart or pg_terminate_backend. Without CheckIdle, a
// pool does not ping a connection within a second of its last use, and the next statement fails.
func CheckIdle(cfg *pgxpool.Config) {
	cfg.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool {
		return p.IdleDuration > trusted || HasNews(p.Conn)
	}
}

// HasNews reports whether the server has closed an idle connection or has sent something on it.
// If so, ping the connection before use. HasNews costs a system call and does not block. On
// systems other than Unix it always returns false.
func HasNews(conn *pgx.Conn) bool { return readable(conn.PgConn().Conn()) }
