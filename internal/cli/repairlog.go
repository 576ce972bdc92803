package cli

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/cli/connect"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/operations"
	"github.com/badged/badged/internal/partition/renumber"
	"github.com/badged/badged/internal/pg/pgsession"
	"github.com/badged/badged/internal/server/config"
)

type repairLogCmd struct {
	config.Database `embed:""`
	DryRun          bool `help:"Print what the command would change, and change nothing." env:"-"`
}

// Run renumbers the log and prints a line for each partition.
func (c *repairLogCmd) Run(ctx context.Context, streams Streams) error {
	databases, err := connect.Separate(ctx, c.Database, false) // not connect.Databases: it fails if a log must be renumbered
	if err != nil {
		return err
	}
	defer connect.Close(databases)
	return connect.EachCandidate(databases, func(d cluster.Candidate) error { return c.repair(ctx, streams, d) })
}

// repair renumbers the log of a database and prints the result.
func (c *repairLogCmd) repair(ctx context.Context, streams Streams, d cluster.Candidate) error {
	if err := connect.Migrated(ctx, d); err != nil {
		return err
	}
	prefix := connect.Prefix(d.Name)
	did := "renumbered"
	if c.DryRun {
		did = "would renumber"
	}
	needed, err := c.renumber(ctx, renumber.Config{
		Conn: d.Pool.Config().ConnConfig, DryRun: c.DryRun,
		Report: func(p renumber.Result) {
			fmt.Fprintf(streams.Out, "%spartition %d: %s %d events; %d appended here come after them\n", prefix, p.Partition, did, p.Copied, p.Appended)
		},
		Blocked: func(partition int, holder pgsession.Holder) {
			fmt.Fprintf(streams.Err, "%spartition %d waits for %s, %s, which uses its log; %s\n", prefix, partition, holder, holder.Open(), holder.Remedy())
		},
	})
	switch {
	case err != nil:
		return err
	case !needed:
		fmt.Fprintln(streams.Out, prefix+"nothing to do: the log is in order")
	case c.DryRun:
		fmt.Fprintln(streams.Out, prefix+"would start new epochs and mark the log as this cluster's; nothing was changed")
	default:
		fmt.Fprintln(streams.Out, prefix+"the log is renumbered and has new epochs; run `badged verify`, then start the servers")
	}
	return nil
}

// renumber renumbers the log of a database. It records this in the audit trail, except in a dry
// run.
func (c *repairLogCmd) renumber(ctx context.Context, cfg renumber.Config) (needed bool, err error) {
	do := func(ctx context.Context) (any, error) {
		needed, err = renumber.Run(ctx, cfg)
		return map[string]bool{"repaired": needed}, err
	}
	if c.DryRun {
		_, err = do(ctx)
		return needed, err
	}
	conn, err := pgx.ConnectConfig(ctx, cfg.Conn)
	if err != nil {
		return false, fmt.Errorf("connect to the database: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	err = operations.Audited(ctx, conn, operations.OSUser(), "repair-log", struct{}{}, do)
	return needed, err
}
