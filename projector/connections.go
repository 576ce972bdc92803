package projector

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// connections are those that batches run on. They are kept from one batch to
// the next, and the one used last goes first: a session that folds a partition
// for the first time plans its statements, which takes ten times as long as
// folding an event. Given back to the pool, a connection would come back from
// whoever else uses that, and partitions would go round all of its sessions.
// It is safe for concurrent use.
type connections struct {
	pool *pgxpool.Pool
	// limit is how many are kept at most; the pool has others to serve too.
	limit int

	mu   sync.Mutex
	kept []keptConnection // the one used last is the last
}

// newConnections keeps up to half of what a pool can have.
func newConnections(pool *pgxpool.Pool) *connections {
	return &connections{pool: pool, limit: int(pool.Config().MaxConns) / 2}
}

type keptConnection struct {
	conn *pgxpool.Conn
	used time.Time
}

// trusted is for how long a connection that is not used is taken to be good.
const trusted = time.Second

// take returns a connection, which is to be kept or released.
func (c *connections) take(ctx context.Context) (*pgxpool.Conn, error) {
	c.mu.Lock()
	var k keptConnection
	if n := len(c.kept); n > 0 {
		k, c.kept = c.kept[n-1], c.kept[:n-1]
	}
	c.mu.Unlock()
	if k.conn != nil {
		if time.Since(k.used) <= trusted {
			return k.conn, nil
		}
		_ = k.conn.Ping(ctx) // closes it if it is broken
		k.conn.Release()     // ends it if it is closed, or too old for the pool
	}
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return conn, nil
}

// keep takes back a connection on which nothing has failed.
func (c *connections) keep(conn *pgxpool.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.kept) >= c.limit {
		conn.Release()
		return
	}
	c.kept = append(c.kept, keptConnection{conn, time.Now()})
}

// release gives all that are kept back to the pool.
func (c *connections) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.kept {
		k.conn.Release()
	}
	c.kept = nil
}
