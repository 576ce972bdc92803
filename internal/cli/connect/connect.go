// Package connect connects commands to the databases that their flags name.
package connect

import (
	"context"
	"errors"
	"fmt"
	"sync"

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

// Shards connects to all shards of a migrated cluster, or to the only database.
// Close the cluster. Shards may be away; see [shards.Shard.Err].
func Shards(ctx context.Context, d config.Database) (*shards.Cluster, error) {
	var guard shards.Guard
	databases, err := Pools(ctx, d, &guard)
	if err != nil {
		return nil, err
	}
	return shards.Open(ctx, shards.Config{Databases: databases, Guard: &guard})
}

// Pools returns guarded pools for all databases, without connecting.
func Pools(ctx context.Context, d config.Database, guard *shards.Guard) ([]shards.Database, error) {
	all, err := d.All()
	if err != nil {
		return nil, err
	}
	var databases []shards.Database
	for _, s := range all {
		pool, err := Pool(ctx, s, guard)
		if err != nil {
			Close(databases)
			return nil, err
		}
		databases = append(databases, shards.Database{Name: s.Name, Pool: pool})
	}
	return databases, nil
}

// Pool returns a guarded pool for a database. It fails if the database cannot be reached,
// unless it is one of several shards.
func Pool(ctx context.Context, s config.Shard, guard *shards.Guard) (*pgxpool.Pool, error) {
	cfg, err := s.PoolConfig()
	if err != nil {
		return nil, err
	}
	// A shard that cannot be reached is away, which shards.Open tells.
	if _, err := pooler.Find(ctx, cfg.ConnConfig); err != nil && (s.Name == "" || errors.Is(err, pooler.ErrShared) || errors.Is(err, pooler.ErrOneSession)) {
		return nil, InShard(s, err)
	}
	guard.Configure(cfg.ConnConfig, s.Name)
	projector.ConfigurePool(cfg)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to the %s: %w", s.Label(), err)
	}
	return pool, nil
}

// Close closes the pools of databases.
func Close(databases []shards.Database) {
	for _, d := range databases {
		d.Pool.Close()
	}
}

// Migrated returns how to connect to a database. It fails if migrations are
// pending.
func Migrated(ctx context.Context, d interface {
	PoolConfig() (*pgxpool.Config, error)
},
) (*pgxpool.Config, error) {
	cfg, err := d.PoolConfig()
	if err != nil {
		return nil, err
	}
	all, err := migrations.Status(ctx, cfg.ConnConfig)
	if err != nil {
		return nil, err
	}
	if n := migrations.Pending(all); n > 0 {
		return nil, fmt.Errorf("%d of %d migrations are pending; run `badged migrate up`, then repeat this command", n, len(all))
	}
	return cfg, nil
}

// PrefixOf begins a line about one of several shards.
func PrefixOf(s *shards.Shard) string { return Prefix(config.Shard{Name: s.Name}) }

// Follow is [Shards] for commands that run for long: they learn of shards that go
// away or come back, and of partitions that move. Call stop at the end.
func Follow(ctx context.Context, d config.Database) (cluster *shards.Cluster, stop func(), err error) {
	if cluster, err = Shards(ctx, d); err != nil {
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

// Each does something with each database, in their order, until it fails.
func Each(d config.Database, do func(config.Shard) error) error {
	all, err := d.All()
	if err != nil {
		return err
	}
	for _, s := range all {
		if err := do(s); err != nil {
			return InShard(s, err)
		}
	}
	return nil
}

// InShard says which shard an error is about, if there are several.
func InShard(s config.Shard, err error) error {
	if err != nil && s.Name != "" {
		return fmt.Errorf("shard %s: %w", s.Name, err)
	}
	return err
}

// Prefix begins a line about one of several shards.
func Prefix(s config.Shard) string {
	if s.Name == "" {
		return ""
	}
	return "shard " + s.Name + ": "
}

// Cluster opens the shards of a cluster; a database by itself is none.
func Cluster(ctx context.Context, d config.Database) (*shards.Cluster, error) {
	cluster, err := Shards(ctx, d)
	if err != nil {
		return nil, err
	}
	if !cluster.Sharded() {
		cluster.Close()
		return nil, errors.New("the database is not one of several shards, so its partitions have no other place: see https://github.com/badged/badged/blob/main/docs/scaling.md")
	}
	return cluster, nil
}
