package cli

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/badged/badged/internal/admin"
	"github.com/badged/badged/internal/config"
	"github.com/badged/badged/projector/lag"
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
	pool, log, err := openDatabase(ctx, c.Database)
	if err != nil {
		return err
	}
	defer pool.Close()
	all := make([]int, log.Partitions())
	for i := range all {
		all[i] = i
	}
	lags, err := lag.Measure(ctx, pool, all, lagCount)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(streams.Out, admin.NewLag(lags))
	}
	table := tabwriter.NewWriter(streams.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "PARTITION\tHEAD\tFOLDED\tEVENTS BEHIND\tSECONDS BEHIND\tOWNER")
	for _, l := range lags {
		behind := fmt.Sprint(l.Events)
		if l.Events >= lagCount {
			behind += " or more"
		}
		owner := l.Owner
		if owner == "" {
			owner = "none"
		}
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%.1f\t%s\n", l.Partition, l.Head, l.Folded, behind, l.Age.Seconds(), owner)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("print the lag: %w", err)
	}
	for _, l := range lags {
		if l.Notifier != nil {
			fmt.Fprintf(streams.Out, "Devices and webhooks are told up to %s of partition %d.\n", l.Notifier, l.Partition)
		}
	}
	return nil
}
