package cli

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/admin"
	"github.com/badged/badged/internal/config"
	"github.com/badged/badged/migrations"
	"github.com/badged/badged/projector"
)

// repairLogCmd is `badged repair-log`.
type repairLogCmd struct {
	config.Database `embed:""`
	DryRun          bool `help:"Say what there is to do, and change nothing." env:"-"`
}

// Run repairs the log and prints a line for each partition that is renumbered.
func (c *repairLogCmd) Run(ctx context.Context, streams Streams) error {
	cfg, err := c.PoolConfig()
	if err != nil {
		return err
	}
	all, err := migrations.Status(ctx, cfg.ConnConfig)
	if err != nil {
		return err
	}
	if n := migrations.Pending(all); n > 0 {
		return fmt.Errorf("%d of %d migrations are pending; run `badged migrate up`, and then this again", n, len(all))
	}
	did := "renumbered"
	if c.DryRun {
		did = "would renumber"
	}
	needed, err := c.repair(ctx, projector.RepairConfig{
		Conn: cfg.ConnConfig, DryRun: c.DryRun,
		Report: func(p projector.PartitionRepair) {
			fmt.Fprintf(streams.Out, "partition %d: %s %d events; %d appended here come after them\n", p.Partition, did, p.Copied, p.Appended)
		},
		Blocked: func(partition, pid int, application string) {
			fmt.Fprintf(streams.Err, "partition %d waits for %q (Postgres process %d), which reads its log and does not end\n", partition, application, pid)
		},
	})
	switch {
	case err != nil:
		return err
	case !needed:
		fmt.Fprintln(streams.Out, "nothing to do: the log was written in this Postgres cluster")
	case c.DryRun:
		fmt.Fprintln(streams.Out, "would start new epochs and take the log for this cluster's; nothing was changed")
	default:
		fmt.Fprintln(streams.Out, "the log is in order; new epochs have begun, and servers can start")
	}
	return nil
}

// repair repairs the log, and says so in the audit trail where it may change
// anything.
func (c *repairLogCmd) repair(ctx context.Context, cfg projector.RepairConfig) (needed bool, err error) {
	repair := func(ctx context.Context) (any, error) {
		needed, err = projector.RepairLog(ctx, cfg)
		return map[string]bool{"repaired": needed}, err
	}
	if c.DryRun {
		_, err = repair(ctx)
		return needed, err
	}
	conn, err := pgx.ConnectConfig(ctx, cfg.Conn)
	if err != nil {
		return false, fmt.Errorf("connect to the database: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	err = admin.Audited(ctx, conn, admin.OSUser(), "repair-log", struct{}{}, repair)
	return needed, err
}
