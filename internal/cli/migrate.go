package cli

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/config"
	"github.com/badged/badged/internal/pooler"
	"github.com/badged/badged/migrations"
)

// migrateCmd is `badged migrate`.
type migrateCmd struct {
	Up     migrateUpCmd     `cmd:"" help:"Apply the pending migrations."`
	Status migrateStatusCmd `cmd:"" help:"Show which migrations are applied."`
	Grant  migrateGrantCmd  `cmd:"" help:"Grant a database role the privileges of a kind, and revoke all others."`
}

type migrateGrantCmd struct {
	config.Database `embed:""`
	Kind            string `arg:"" enum:"server,publisher,consumer,reader" help:"server, publisher, consumer or reader."`
	Role            string `arg:"" help:"The role. It must exist."`
}

// Run grants the privileges. Only the owner of the schema can.
func (c *migrateGrantCmd) Run(ctx context.Context, streams Streams) error {
	cfg, err := migratedConfig(ctx, c.Database)
	if err != nil {
		return err
	}
	if err := migrations.Grant(ctx, cfg.ConnConfig, migrations.RoleKind(c.Kind), c.Role); err != nil {
		return err
	}
	fmt.Fprintf(streams.Out, "role %s has the privileges of a %s in the schema badged, and no others\n", c.Role, c.Kind)
	return nil
}

type migrateUpCmd struct {
	config.Database `embed:""`
	Partitions      int `help:"Partitions of an empty database, 1 to 256; cannot be changed later. Default: 4." placeholder:"N"`
}

// Validate implements kong's validation.
func (c *migrateUpCmd) Validate() error {
	if c.Partitions < 0 || c.Partitions > events.MaxPartitions {
		return fmt.Errorf("--partitions must be from 1 to %d", events.MaxPartitions)
	}
	return nil
}

// Run applies the pending migrations and prints them.
func (c *migrateUpCmd) Run(ctx context.Context, streams Streams) error {
	cfg, err := c.PoolConfig()
	if err != nil {
		return err
	}
	if _, err := pooler.Find(ctx, cfg.ConnConfig); err != nil {
		return err
	}
	applied, err := migrations.Up(ctx, migrations.Config{
		Conn: cfg.ConnConfig, Partitions: c.Partitions,
		Retrying: func(err error, wait time.Duration) {
			fmt.Fprintf(streams.Err, "badged: a migration could not get its locks and was rolled back; trying again in %v: %v\n", wait, err)
		},
	})
	if err != nil {
		return err
	}
	for _, m := range applied {
		fmt.Fprintf(streams.Out, "applied %s\n", m.Name)
	}
	if len(applied) == 0 {
		fmt.Fprintln(streams.Out, "nothing to do: every migration is applied")
	}
	// Report a log that servers would refuse.
	pool, _, err := openDatabase(ctx, c.Database)
	if err != nil {
		return err
	}
	pool.Close()
	return nil
}

type migrateStatusCmd struct {
	config.Database `embed:""`
}

// Run prints every migration. It fails if some are pending, for scripts.
func (c *migrateStatusCmd) Run(ctx context.Context, streams Streams) error {
	cfg, err := c.PoolConfig()
	if err != nil {
		return err
	}
	all, err := migrations.Status(ctx, cfg.ConnConfig)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(streams.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "MIGRATION\tAPPLIED")
	for _, m := range all {
		applied := "pending"
		if !m.AppliedAt.IsZero() {
			applied = m.AppliedAt.UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(table, "%s\t%s\n", m.Name, applied)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if n := migrations.Pending(all); n > 0 {
		return fmt.Errorf("%d of %d migrations are pending; run `badged migrate up`", n, len(all))
	}
	return nil
}
