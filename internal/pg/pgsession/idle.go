package pgsession

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// trusted is how long after its last use a connection may be used again without a ping, unless
// HasNews reports true.
const trusted = time.Second

// CheckIdle makes a pool ping a connection before use if the server may have closed the
// connection since its last use: because of idle_session_timeout, a restart or
// pg_terminate_backend. Without CheckIdle, a pool does not ping a connection in the first second
// after its last use; if the server has closed the connection, the next statement fails.
func CheckIdle(cfg *pgxpool.Config) {
	cfg.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool {
		return p.IdleDuration > trusted || HasNews(p.Conn)
	}
}

// HasNews reports whether the server has closed an idle connection or has sent data on it. If so,
// ping the connection before use. HasNews makes one system call and does not block. On systems
// other than Unix it always returns false.
func HasNews(conn *pgx.Conn) bool { return readable(conn.PgConn().Conn()) }
