package shards

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Guard refuses connections to databases that are not the shards that they were when the
// cluster was opened, as after a failover to a wrong server: nothing is read, folded or
// written there. Its zero value admits all until then. It is safe for concurrent use.
type Guard struct{ cluster atomic.Pointer[string] }

// Configure makes new connections to a shard ask which it is, after what config demands of
// them. One database by itself has no name, and is not asked.
func (g *Guard) Configure(config *pgx.ConnConfig, name string) {
	if name == "" {
		return
	}
	before := config.ValidateConnect
	config.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		if before != nil {
			if err := before(ctx, conn); err != nil {
				return err
			}
		}
		if cluster := g.cluster.Load(); cluster != nil {
			return ask(ctx, conn, *cluster, name)
		}
		return nil
	}
}

// ask fails unless a database is a shard of a cluster.
func ask(ctx context.Context, conn *pgconn.PgConn, cluster, name string) error {
	results, err := conn.Exec(ctx, statements.Get("which shard is it")).ReadAll()
	switch {
	case undefined(err):
	case err != nil:
		return fmt.Errorf("read which shard the database is: %w", err)
	case len(results) == 1 && len(results[0].Rows) == 1:
		return mistaken(string(results[0].Rows[0][0]), string(results[0].Rows[0][1]), cluster, name)
	}
	return errNoShard
}

// errNoShard is of a database that was a shard.
var errNoShard = fmt.Errorf("%w: check its URL, or restore it from a backup", ErrEmpty)

// mistaken returns why a database that says that it is a shard of a cluster is not the one
// that it should be.
func mistaken(cluster, member, of, name string) error {
	switch {
	case cluster != of:
		return fmt.Errorf("%w: it is of %s, not %s: check its URL", ErrForeign, cluster, of)
	case member != name:
		return fmt.Errorf("%w: it says that it is shard %s, not %s: check its URL", ErrMisnamed, member, name)
	}
	return nil
}
