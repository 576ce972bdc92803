package cli

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/badged/badged/internal/admin"
	"github.com/badged/badged/internal/config"
	"github.com/badged/badged/internal/operators"
)

// lagCmd is `badged lag`.
type lagCmd struct {
	config.Database `embed:""`
	JSON            bool `name:"json" help:"Print JSON." env:"-"`
}

// lagCount limits how many rows of events `badged lag` counts in one partition.
const lagCount = 1_000_000

// Run prints the lag of every partition.
func (c *lagCmd) Run(ctx context.Context, streams Streams) error {
	cluster, err := openShards(ctx, c.Database)
	if err != nil {
		return err
	}
	defer cluster.Close()
	lags, err := operators.Lag(ctx, cluster, lagCount)
	if len(lags.Partitions) == 0 && err != nil {
		return err
	}
	if c.JSON {
		return errors.Join(err, printJSON(streams.Out, lags))
	}
	return errors.Join(err, printLag(streams, lags, cluster.Sharded()))
}

func printLag(streams Streams, lags admin.Lag, sharded bool) error {
	table := tabwriter.NewWriter(streams.Out, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "PARTITION\tHEAD\tFOLDED\tEVENTS BEHIND\tSECONDS BEHIND\tOWNER")
	if sharded {
		fmt.Fprint(table, "\tSHARD")
	}
	fmt.Fprintln(table)
	for _, l := range lags.Partitions {
		behind := fmt.Sprint(l.EventsBehind)
		if l.EventsBehind >= lagCount {
			behind += " or more"
		}
		owner := l.Owner
		if owner == "" {
			owner = "none"
		}
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%.1f\t%s", l.Partition, l.Head, l.Folded, behind, l.SecondsBehind, owner)
		if sharded {
			fmt.Fprint(table, "\t"+l.Shard)
		}
		fmt.Fprintln(table)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("print the lag: %w", err)
	}
	for _, l := range lags.Partitions {
		if l.Notifier != "" {
			fmt.Fprintf(streams.Out, "Devices and webhooks are told up to %s of partition %d.\n", l.Notifier, l.Partition)
		}
	}
	return nil
}
