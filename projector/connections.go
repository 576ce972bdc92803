package projector

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/internal/fold/store"
	"github.com/badged/badged/internal/pg/pgsession"
)

// connections has the database connections of batches. After a batch, its connection is stored
// here, and the next batch uses the connection that was stored last. So only a few sessions
// fold. This matters because a session that folds a partition for the first time must plan its
// statements, which takes ten times as long as folding an event. If batches used any
// connection of the pool, which also serves other work, many sessions would plan the
// statements of each partition. connections is safe for concurrent use.
type connections struct {
	pool *pgxpool.Pool
	// limit is the maximum number of stored connections, since the pool serves other work
	// too.
	limit int
	// lockTimeout is how long a statement in these sessions may wait for a lock while it is
	// planned or executed. 0 means no limit.
	lockTimeout time.Duration

	mu   sync.Mutex
	kept []keptConnection // the connection that was used last is at the end
}

// newConnections returns a set that stores up to a third of the connections of a pool.
func newConnections(pool *pgxpool.Pool, lockTimeout time.Duration) *connections {
	return &connections{pool: pool, limit: int(pool.Config().MaxConns) / 3, lockTimeout: lockTimeout}
}

type keptConnection struct {
	conn *pgxpool.Conn
	used time.Time
}

// trusted is how long a stored connection is assumed to work without a check. If the server has
// sent something on the connection, the connection is checked in any case.
const trusted = time.Second

// take returns a connection: a stored one if there is one, otherwise one of the pool. The caller
// must pass the connection to the method keep, or release it.
func (c *connections) take(ctx context.Context) (*pgxpool.Conn, error) {
	c.mu.Lock()
	var k keptConnection
	if n := len(c.kept); n > 0 {
		k, c.kept = c.kept[n-1], c.kept[:n-1]
	}
	c.mu.Unlock()
	if k.conn != nil {
		if time.Since(k.used) <= trusted && !pgsession.HasNews(k.conn.Conn()) {
			return k.conn, nil
		}
		_ = k.conn.Ping(ctx) // closes the connection if it is broken
		c.giveBack(k.conn)   // the pool drops it if it is closed or too old
	}
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	if err := c.setUp(ctx, conn); err != nil {
		conn.Release()
		return nil, fmt.Errorf("set up the session: %w", err)
	}
	return conn, nil
}

// setUp prepares the session of a connection that was acquired from the pool.
func (c *connections) setUp(ctx context.Context, conn *pgxpool.Conn) error {
	if c.lockTimeout > 0 {
		if _, err := conn.Exec(ctx, fmt.Sprintf(`SET lock_timeout = %d`, c.lockTimeout.Milliseconds())); err != nil {
			return err
		}
	}
	if incarnationOf(conn) != "" {
		return nil
	}
	var incarnation string
	if err := conn.QueryRow(ctx, store.LoadIncarnationSQL).Scan(&incarnation); err != nil {
		return err
	}
	conn.Conn().PgConn().CustomData()[incarnationKey] = incarnation
	return nil
}

const incarnationKey = "badged.incarnation"

// incarnationOf returns the value of store.IncarnationSQL for a connection from the method take.
// The value cannot change during a session. A restart of Postgres ends all sessions. A promotion of
// a standby does not end its sessions, but take returns no session that began on a standby, since
// setUp fails there.
func incarnationOf(conn *pgxpool.Conn) string {
	incarnation, _ := conn.Conn().PgConn().CustomData()[incarnationKey].(string)
	return incarnation
}

// timelineOf returns the timeline in the text of an incarnation, 0 if the text has none.
func timelineOf(incarnation string) int64 {
	digits, _, _ := strings.Cut(incarnation, "/")
	timeline, err := strconv.ParseInt(digits, 16, 64)
	if err != nil {
		return 0
	}
	return timeline
}

// giveBack returns a connection to the pool with its original settings.
func (c *connections) giveBack(conn *pgxpool.Conn) {
	if c.lockTimeout > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := conn.Exec(ctx, `SET lock_timeout = 0`); err != nil {
			_ = conn.Conn().Close(ctx) // the pool drops the closed connection
		}
	}
	conn.Release()
}

// keep stores a connection for the next batch. It returns a broken connection to the pool,
// which closes it.
func (c *connections) keep(conn *pgxpool.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.kept) >= c.limit || conn.Conn().IsClosed() || conn.Conn().PgConn().TxStatus() != 'I' {
		c.giveBack(conn)
		return
	}
	c.kept = append(c.kept, keptConnection{conn, time.Now()})
}

// release returns all stored connections to the pool.
func (c *connections) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.kept {
		c.giveBack(k.conn)
	}
	c.kept = nil
}
