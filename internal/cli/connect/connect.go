// Package connect connects commands to the databases that their flags name.
//
// It does not know what commands do with the databases. ADR 115 says why a pooler is
// refused.
package connect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/config"
	"github.com/badged/badged/internal/pooler"
	"github.com/badged/badged/internal/shards"
	"github.com/badged/badged/migrations"
	"github.com/badged/badged/projector"
)

// Database connects to a database that has been migrated.
func Database(ctx context.Context, d config.Database) (*pgxpool.Pool, *events.Log, error) {
	cfg, err := d.PoolConfig()
	if err != nil {
		return nil, nil, err
	}
	if _, err := pooler.Find(ctx, cfg.ConnConfig); err != nil {
		return nil, nil, err
	}
	projector.ConfigurePool(cfg)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the database: %w", err)
	}
	log, err := events.Open(ctx, pool)
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return pool, log, nil
}

// Shards connects to all shards of a migrated cluster, or to the only database. It fails if
// migrations are pending, and warns if shards have different ones. Close the cluster. Shards
// may be away; see [shards.Shard.Err].
func Shards(ctx context.Context, d config.Database, warnings io.Writer) (*shards.Cluster, error) {
	var guard shards.Guard
	databases, err := Pools(ctx, d, &guard)
	if err != nil {
		return nil, err
	}
	states := map[string]migrations.State{}
	check := func(ctx context.Context, i int) (err error) {
		states[databases[i].Name], err = migrated(ctx, databases[i])
		return err
	}
	if !d.Sharded() { // before statements fail on an old schema
		if err := check(ctx, 0); err != nil {
			Close(databases)
			return nil, err
		}
	}
	cluster, err := shards.Open(ctx, shards.Config{Databases: databases, Guard: &guard, Check: check})
	if err != nil {
		return nil, err
	}
	if uneven := migrations.Uneven(states); uneven != "" {
		fmt.Fprintln(warnings, "badged: "+uneven)
	}
	return cluster, nil
}

// Apart connects to shards for a command that works on each by itself, also if others are
// missing or away, or to the only database. It fails if one is not the shard that its name
// says; with joining, databases may be new to the cluster: see [shards.Identify]. Use them
// with [Each], and close them.
func Apart(ctx context.Context, d config.Database, joining bool) ([]shards.Database, error) {
	databases, err := Pools(ctx, d, &shards.Guard{})
	if err != nil || !d.Sharded() {
		return databases, err
	}
	if err := shards.Identify(ctx, databases, joining); err != nil {
		Close(databases)
		return nil, err
	}
	return databases, nil
}

// Pools returns guarded pools for all databases. It looks for poolers in front of all at the
// same time. It fails if the only database cannot be reached; several that cannot have an
// Err.
func Pools(ctx context.Context, d config.Database, guard *shards.Guard) ([]shards.Database, error) {
	all, err := d.All()
	if err != nil {
		return nil, err
	}
	databases := make([]shards.Database, len(all))
	err = AtOnce(all, func(i int, s config.Shard) (err error) {
		databases[i], err = open(ctx, s, guard)
		return err
	})
	if err = cmp.Or(err, ctx.Err()); err != nil {
		Close(databases)
		return nil, err
	}
	return databases, nil
}

// Patience is how long one of several shards may take to answer until it is away.
const Patience = 10 * time.Second

// open returns a guarded pool for a database.
func open(ctx context.Context, s config.Shard, guard *shards.Guard) (d shards.Database, err error) {
	d.Name = s.Name
	cfg, err := s.PoolConfig()
	if err != nil {
		return d, err
	}
	looking := ctx
	if s.Name != "" {
		var cancel context.CancelFunc
		looking, cancel = context.WithTimeout(ctx, Patience)
		defer cancel()
	}
	if _, err := pooler.Find(looking, cfg.ConnConfig); err != nil {
		if s.Name == "" || errors.Is(err, pooler.ErrShared) || errors.Is(err, pooler.ErrOneSession) {
			return d, err
		}
		if refused, ok := errors.AsType[*pgconn.ConnectError](err); ok {
			d.Err = refused
		} else if looking.Err() != nil {
			d.Err = err
		} // others are asked again
	}
	guard.Configure(cfg.ConnConfig, s.Name)
	projector.ConfigurePool(cfg)
	if d.Pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return d, fmt.Errorf("connect to the database: %w", err)
	}
	return d, nil
}

// AtOnce does something with each database at the same time. Its errors name the shards, and
// are in their order.
func AtOnce(all []config.Shard, do func(i int, s config.Shard) error) error {
	errs := make([]error, len(all))
	var g sync.WaitGroup
	for i, s := range all {
		g.Go(func() { errs[i] = InShard(s.Name, do(i, s)) })
	}
	g.Wait()
	return errors.Join(errs...)
}

// Each does something with each database that is not away, one after the other, also if one
// fails. Its errors name the shards.
func Each(databases []shards.Database, do func(shards.Database) error) error {
	var errs []error
	for _, d := range databases {
		err := d.Err
		if err == nil {
			err = do(d)
		}
		errs = append(errs, InShard(d.Name, err))
	}
	return errors.Join(errs...)
}

// Close closes the pools of databases.
func Close(databases []shards.Database) {
	for _, d := range databases {
		if d.Pool != nil {
			d.Pool.Close()
		}
	}
}

// Migrated fails if migrations are pending in a database.
func Migrated(ctx context.Context, d shards.Database) error {
	_, err := migrated(ctx, d)
	return err
}

func migrated(ctx context.Context, d shards.Database) (migrations.State, error) {
	state, err := migrations.StateOf(ctx, d.Pool)
	if err != nil {
		return state, err
	}
	if lacks := state.Lacks(); lacks != "" {
		return state, fmt.Errorf("%s; run `badged migrate up`, then repeat this command", lacks)
	}
	return state, nil
}

// Follow is [Shards] for commands that run for long: they learn of shards that go
// away or come back, and of partitions that move. Call stop at the end.
func Follow(ctx context.Context, d config.Database, warnings io.Writer) (cluster *shards.Cluster, stop func(), err error) {
	if cluster, err = Shards(ctx, d, warnings); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var followed sync.WaitGroup
	followed.Go(func() { _ = cluster.Run(ctx) }) // it returns nil
	return cluster, func() {
		cancel()
		followed.Wait()
		cluster.Close()
	}, nil
}

// InShard says which shard an error is about, by its name; "" is the only database.
func InShard(name string, err error) error {
	if err != nil && name != "" {
		return fmt.Errorf("shard %s: %w", name, err)
	}
	return err
}

// Prefix begins a line about a shard, by its name; "" is the only database.
func Prefix(name string) string {
	if name == "" {
		return ""
	}
	return "shard " + name + ": "
}

// Cluster opens the shards of a cluster; a database by itself is none.
func Cluster(ctx context.Context, d config.Database, warnings io.Writer) (*shards.Cluster, error) {
	cluster, err := Shards(ctx, d, warnings)
	if err != nil {
		return nil, err
	}
	if !cluster.Sharded() {
		cluster.Close()
		return nil, errors.New("the database is not one of several shards, so its partitions have no other place: see https://github.com/badged/badged/blob/main/docs/scaling.md")
	}
	return cluster, nil
}
