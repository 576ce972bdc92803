package cli

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/badged/badged/internal/admin"
	"github.com/badged/badged/internal/config"
	"github.com/badged/badged/projector/lag"
)

// lagCmd is `badged lag`.
type lagCmd struct {
	config.Database `embed:""`
	JSON            bool `name:"json" help:"Print JSON." env:"-"`
}

// lagCount limits how many events `badged lag` counts in one partition.
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
	horizon, open, err := lag.OldestWriter(ctx, pool)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(streams.Out, admin.NewLag(lags, horizon, open))
	}
	table := tabwriter.NewWriter(streams.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "PARTITION\tHEAD\tFOLDED\tEVENTS BEHIND\tSECONDS BEHIND\tOWNER")
	for _, l := range lags {
		behind := fmt.Sprint(l.Events)
		if l.Events == lagCount {
			behind += " or more"
		}
		owner := l.Owner
		if owner == "" {
			owner = "none"
		}
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%.1f\t%s\n", l.Partition, l.Head, l.Folded, behind, l.Age.Seconds(), owner)
	}
	if err := table.Flush(); err != nil || !open || horizon.Age < shownHorizon {
		return err
	}
	_, err = fmt.Fprintf(streams.Out, "\nEvents of the last %.1f s may wait for %s to end.\n", horizon.Age.Seconds(), describeHorizon(horizon))
	return err
}

// shownHorizon is the age from which `badged lag` shows the oldest transaction.
// Younger ones are normal.
const shownHorizon = time.Second

// describeHorizon describes a transaction.
func describeHorizon(h lag.Horizon) string {
	if h.Prepared != "" {
		return fmt.Sprintf("the prepared transaction %q of user %s in database %s", h.Prepared, h.User, h.Database)
	}
	text := fmt.Sprintf("the transaction of pid %d", h.PID)
	for _, f := range []struct{ name, value string }{
		{"user", h.User}, {"database", h.Database}, {"application", h.Application}, {"state", h.State},
	} {
		if f.value != "" {
			text += fmt.Sprintf(", %s %q", f.name, f.value)
		}
	}
	return text
}
