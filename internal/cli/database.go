package cli

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/config"
	"github.com/badged/badged/internal/pooler"
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

// migratedConfig returns how to connect to a database. It fails if migrations are
// pending.
func migratedConfig(ctx context.Context, d config.Database) (*pgxpool.Config, error) {
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
