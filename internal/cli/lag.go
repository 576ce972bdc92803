package cli

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/badged/badged/internal/config"
	"github.com/badged/badged/projector"
)

// lagCmd is `badged lag`.
type lagCmd struct {
	config.Database `embed:""`
	JSON            bool `name:"json" help:"Print JSON." env:"-"`
}

// lagCount is how many events `badged lag` counts in one partition.
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
	lags, err := projector.Lags(ctx, pool, all, lagCount)
	if err != nil {
		return err
	}
	horizon, open, err := projector.OldestWriter(ctx, pool)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(streams.Out, newLagJSON(lags, horizon, open))
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
			owner = "nobody"
		}
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%.1f\t%s\n", l.Partition, l.Head, l.Folded, behind, l.Age.Seconds(), owner)
	}
	if err := table.Flush(); err != nil || !open || horizon.Age < shownHorizon {
		return err
	}
	_, err = fmt.Fprintf(streams.Out, "\nEvents of the last %.1f s may wait for %s to end.\n", horizon.Age.Seconds(), describeHorizon(horizon))
	return err
}

// shownHorizon is the age from which `badged lag` names the oldest transaction:
// there is nearly always one that is about to end.
const shownHorizon = time.Second

// describeHorizon names a transaction, and what is known of it.
func describeHorizon(h projector.Horizon) string {
	if h.Prepared != "" {
		return fmt.Sprintf("the prepared transaction %q of user %s in database %s", h.Prepared, h.User, h.Database)
	}
	text := fmt.Sprintf("the transaction of pid %d", h.PID)
	for _, f := range []struct{ name, value string }{
		{"user", h.User}, {"database", h.Database}, {"application", h.Application}, {"state", h.State}, {"query", h.Query},
	} {
		if f.value != "" {
			text += fmt.Sprintf(", %s %q", f.name, f.value)
		}
	}
	return text
}

// lagJSON is what `badged lag --json` prints.
type lagJSON struct {
	Partitions []partitionLagJSON `json:"partitions"`
	// Horizon is the oldest transaction that has written, null where there is
	// none.
	Horizon *horizonJSON `json:"horizon"`
}

// partitionLagJSON is a projector.Lag.
type partitionLagJSON struct {
	Partition int `json:"partition"`
	// Head and Folded are positions, such as "1234/56".
	Head   string `json:"head"`
	Folded string `json:"folded"`
	// EventsBehind is lagCount where they are that many or more.
	EventsBehind  int64   `json:"events_behind"`
	SecondsBehind float64 `json:"seconds_behind"`
	// Owner is empty where nobody folds the partition.
	Owner string `json:"owner"`
}

// horizonJSON is a projector.Horizon.
type horizonJSON struct {
	PID      int    `json:"pid,omitempty"`
	Prepared string `json:"prepared,omitempty"`
	// What Postgres does not tell the role is left out.
	User        string  `json:"user,omitempty"`
	Database    string  `json:"database,omitempty"`
	Application string  `json:"application,omitempty"`
	State       string  `json:"state,omitempty"`
	Query       string  `json:"query,omitempty"`
	Seconds     float64 `json:"seconds"`
}

func newLagJSON(lags []projector.Lag, h projector.Horizon, open bool) lagJSON {
	l := lagJSON{Partitions: make([]partitionLagJSON, len(lags))}
	for i, p := range lags {
		l.Partitions[i] = partitionLagJSON{p.Partition, p.Head.String(), p.Folded.String(), p.Events, p.Age.Seconds(), p.Owner}
	}
	if open {
		l.Horizon = &horizonJSON{h.PID, h.Prepared, h.User, h.Database, h.Application, h.State, h.Query, h.Age.Seconds()}
	}
	return l
}
