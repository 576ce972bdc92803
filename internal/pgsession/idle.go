package pgsession

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// trusted is how long an unused connection is assumed to work if nothing has come on it.
const trusted = time.Second

// CheckIdle makes a pool drop connections that the server has ended while nothing used
// them: by idle_session_timeout, a restart or pg_terminate_backend. By itself a pool trusts
// for a second what it has used last, and the next statement fails.
func CheckIdle(cfg *pgxpool.Config) {
	cfg.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool {
		return p.IdleDuration > trusted || HasNews(p.Conn)
	}
}

// HasNews reports whether the server has sent something on a connection that waits for
// nothing, or has closed it: ping it before use. It costs a system call and does not block.
// Where the system cannot tell, it returns false.
func HasNews(conn *pgx.Conn) bool { return readable(conn.PgConn().Conn()) }
