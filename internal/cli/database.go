package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/config"
	"github.com/badged/badged/internal/pooler"
	"github.com/badged/badged/internal/shards"
	"github.com/badged/badged/migrations"
	"github.com/badged/badged/projector"
)

// openDatabase connects to a database that has been migrated.
func openDatabase(ctx context.Context, d config.Database) (*pgxpool.Pool, *events.Log, error) {
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

// openShards connects to all shards of a migrated cluster, or to the only database.
// Close the cluster. Shards may be away; see [shards.Shard.Err].
func openShards(ctx context.Context, d config.Database) (*shards.Cluster, error) {
	var guard shards.Guard
	databases, err := openPools(ctx, d, &guard)
	if err != nil {
		return nil, err
	}
	return shards.Open(ctx, shards.Config{Databases: databases, Guard: &guard})
}

// openPools returns guarded pools for all databases, without connecting.
func openPools(ctx context.Context, d config.Database, guard *shards.Guard) ([]shards.Database, error) {
	all, err := d.All()
	if err != nil {
		return nil, err
	}
	var databases []shards.Database
	for _, s := range all {
		pool, err := openPool(ctx, s, guard)
		if err != nil {
			closePools(databases)
			return nil, err
		}
		databases = append(databases, shards.Database{Name: s.Name, Pool: pool})
	}
	return databases, nil
}

func openPool(ctx context.Context, s config.Shard, guard *shards.Guard) (*pgxpool.Pool, error) {
	cfg, err := s.PoolConfig()
	if err != nil {
		return nil, err
	}
	if s.Name != "" && cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = shardPatience
	}
	// A shard that cannot be reached is away, which shards.Open tells.
	if _, err := pooler.Find(ctx, cfg.ConnConfig); err != nil && (s.Name == "" || errors.Is(err, pooler.ErrShared) || errors.Is(err, pooler.ErrOneSession)) {
		return nil, inShard(s, err)
	}
	guard.Configure(cfg.ConnConfig, s.Name)
	projector.ConfigurePool(cfg)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to the %s: %w", s.Label(), err)
	}
	return pool, nil
}

// shardPatience is how long connecting to one of several shards may take.
const shardPatience = 5 * time.Second

func closePools(databases []shards.Database) {
	for _, d := range databases {
		d.Pool.Close()
	}
}

// migratedConfig returns how to connect to a database. It fails if migrations are
// pending.
func migratedConfig(ctx context.Context, d interface {
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

// prefixOf begins a line about one of several shards.
func prefixOf(s *shards.Shard) string { return prefix(config.Shard{Name: s.Name}) }

// followShards is openShards for commands that run for long: they learn of shards that go
// away or come back, and of partitions that move. Call stop at the end.
func followShards(ctx context.Context, d config.Database) (cluster *shards.Cluster, stop func(), err error) {
	if cluster, err = openShards(ctx, d); err != nil {
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
