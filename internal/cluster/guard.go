package cluster

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Guard refuses a new connection if it leads to another database than the configured one, for
// example after a failover to a wrong server. Until the cluster is opened, Guard accepts every
// database. The zero value is ready to use. It is safe for concurrent use.
type Guard struct{ cluster atomic.Pointer[string] }

// Configure adds a check to config: each new connection must lead to the database that is called
// name in the cluster. Checks that config already has run first. If name is "", as for a single
// database, Configure adds no check.
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

// ask fails unless the database stores the given name and cluster as its own.
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

// errNoShard means that the database of a configured shard has no schema, or stores no name of a
// shard.
var errNoShard = fmt.Errorf("%w: check its URL, or restore it from a backup", ErrEmpty)

// mistaken returns an error unless cluster and member, the names that a database stores, equal the
// configured names expected and name.
func mistaken(cluster, member, expected, name string) error {
	switch {
	case cluster != expected:
		return fmt.Errorf("%w: it belongs to %s, not to %s: check its URL", ErrForeign, cluster, expected)
	case member != name:
		return fmt.Errorf("%w: it says that it is shard %s, not %s: check its URL", ErrMisnamed, member, name)
	}
	return nil
}
