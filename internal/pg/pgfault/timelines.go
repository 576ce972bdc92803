package pgfault

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrOldPrimary means that a connection leads to a Postgres server that was the primary before a
// failover.
var ErrOldPrimary = errors.New("this Postgres was the primary before a failover and must be fenced; if the database was restored on purpose, restart badged")

// timelineSQL returns 0 on a standby, where Postgres cannot read the current timeline.
const timelineSQL = `SELECT CASE WHEN pg_is_in_recovery() THEN 0 ELSE ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint END`

// Timelines prevents a process from using an old primary after a failover. The old primary may
// still run, for example if its network link to the other servers is cut. When a standby is
// promoted, it begins a timeline with a greater number. As soon as a new connection reports a
// greater number, Timelines closes the connections to servers on earlier timelines. It refuses
// new connections to such servers, so pgx tries the next host. Timelines is safe for concurrent
// use.
type Timelines struct {
	mu  sync.Mutex
	all map[string]*timelines // by hosts and database
}

// timelines has the newest timeline of one database and the timelines of its open connections.
type timelines struct {
	newest int64
	byConn map[*pgconn.PgConn]int64 // open connections
}

// Configure adds a check to cfg: t checks the timeline of each new connection. Checks that cfg
// already has run first.
func (t *Timelines) Configure(cfg *pgx.ConnConfig) {
	database := nameOf(cfg)
	before := cfg.ValidateConnect
	cfg.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		if before != nil {
			if err := before(ctx, conn); err != nil {
				return err
			}
		}
		results, err := conn.Exec(ctx, timelineSQL).ReadAll()
		if err != nil {
			return fmt.Errorf("read the timeline: %w", err)
		}
		timeline, err := strconv.ParseInt(string(results[0].Rows[0][0]), 10, 64)
		if err != nil {
			return fmt.Errorf("read the timeline: %w", err)
		}
		return t.admit(database, conn, timeline)
	}
}

// nameOf returns the key of the database of cfg in Timelines.all: a process may use several
// databases, and each database has its own timelines.
func nameOf(cfg *pgx.ConnConfig) string {
	name := fmt.Sprintf("%s at %s:%d", cfg.Database, cfg.Host, cfg.Port)
	for _, f := range cfg.Fallbacks {
		name += fmt.Sprintf(",%s:%d", f.Host, f.Port)
	}
	return name
}

func (t *Timelines) admit(database string, conn *pgconn.PgConn, timeline int64) error {
	if timeline == 0 {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = map[string]*timelines{}
	}
	d := t.all[database]
	if d == nil {
		d = &timelines{byConn: map[*pgconn.PgConn]int64{}}
		t.all[database] = d
	}
	if timeline < d.newest {
		return fmt.Errorf("timeline %d, behind timeline %d: %w", timeline, d.newest, ErrOldPrimary)
	}
	d.newest = timeline
	for other, on := range d.byConn {
		select {
		case <-other.CleanupDone(): // it is closed
			delete(d.byConn, other)
			continue
		default:
		}
		if on < timeline {
			_ = other.Conn().Close() // the next statement on the connection fails
			delete(d.byConn, other)
		}
	}
	d.byConn[conn] = timeline
	return nil
}
