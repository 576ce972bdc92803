package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/admin"
	"github.com/badged/badged/internal/cli/connect"
	"github.com/badged/badged/internal/cli/terminal"
	"github.com/badged/badged/internal/config"
	"github.com/badged/badged/internal/eventbatch"
	"github.com/badged/badged/internal/operators"
	"github.com/badged/badged/internal/shards"
	"github.com/badged/badged/projector/logview"
)

// logCmd is `badged log`.
type logCmd struct {
	config.Database `embed:""`
	Partition       *int      `help:"Print only this partition." placeholder:"N" env:"-"`
	User            string    `help:"Print only events for this user, and messages to rooms while the user is a member." placeholder:"ID" env:"-"`
	Conversation    string    `help:"Print only events in this conversation." placeholder:"ID" env:"-"`
	PublishedBy     string    `help:"Print only events that were published over HTTP with the key of this name." placeholder:"NAME" env:"-"`
	Since           time.Time `help:"Print only events appended at this time, such as 2026-01-31T23:59:59Z, or later." placeholder:"TIME" env:"-"`
	Until           time.Time `help:"Print only events appended at this time or earlier." placeholder:"TIME" env:"-"`
	Follow          bool      `short:"f" help:"Go on with events as they are folded." env:"-"`
}

// logLine is an event as `badged log` prints it.
type logLine struct {
	Partition  int             `json:"partition"`
	Shard      string          `json:"shard,omitempty"`
	Position   string          `json:"position"`
	AppendedAt time.Time       `json:"appended_at"`
	Event      json.RawMessage `json:"event,omitempty"`
	// Payload is what is in the log if it is no JSON, and Damage the reason if a
	// row cannot be taken apart.
	Payload []byte `json:"payload_base64,omitempty"`
	Damage  string `json:"damage,omitempty"`
}

// followInterval is how often `badged log --follow` looks for more.
const followInterval = 200 * time.Millisecond

// Validate checks the ids, and that the times are in order.
func (c *logCmd) Validate() error {
	if err := c.Database.Validate(); err != nil {
		return err
	}
	for _, f := range []struct{ flag, id string }{{"user", c.User}, {"conversation", c.Conversation}, {"published-by", c.PublishedBy}} {
		if reason := events.CheckID(f.id); f.id != "" && reason != "" {
			return fmt.Errorf("--%s %s", f.flag, reason)
		}
	}
	if !c.Until.IsZero() && c.Since.After(c.Until) {
		return fmt.Errorf("--since %s is after --until %s", c.Since.Format(time.RFC3339), c.Until.Format(time.RFC3339))
	}
	return nil
}

// Run prints the events of the log, a line of JSON for each.
func (c *logCmd) Run(ctx context.Context, streams Streams) error {
	cluster, closeCluster, err := connect.Follow(ctx, c.Database, streams.Err)
	if err != nil {
		return err
	}
	defer closeCluster()
	filter := logview.Filter{User: c.User, Conversation: c.Conversation, PublishedBy: c.PublishedBy, Since: c.Since, Until: c.Until}
	record := func(bool) error { return nil } // whether there are events of the user
	if c.User != "" {
		shard, err := operators.Of(cluster, c.User)
		if err != nil {
			return err
		}
		record = func(known bool) error {
			record = func(bool) error { return nil }
			return recordRead(ctx, shard.Pool, streams, admin.ReadLog, c.User, known)
		}
	}
	switch {
	case c.Partition != nil && cluster.CheckPartition(*c.Partition) != nil:
		return cluster.CheckPartition(*c.Partition)
	case c.Partition != nil && c.User != "" && *c.Partition != cluster.PartitionOf(filter.User):
		return fmt.Errorf("the user %q is in partition %d, not %d", filter.User, cluster.PartitionOf(filter.User), *c.Partition)
	}
	some, err := c.shards(cluster)
	if err != nil {
		return err
	}
	lines := json.NewEncoder(streams.Out)
	lines.SetEscapeHTML(false)
	views := map[*shards.Shard]*logview.View{}
	for _, s := range some {
		filter.Partitions = s.Held()
		if c.Partition != nil {
			filter.Partitions = []int{*c.Partition}
		}
		views[s] = logview.New(s.Pool, s.Log, filter)
	}
	tick := time.NewTicker(followInterval)
	defer tick.Stop()
	for {
		err := operators.EachOf(ctx, cluster, some, func(s *shards.Shard) error {
			return views[s].Next(ctx, func(partition int, r *events.Record) error {
				line := newLogLine(partition, r)
				line.Shard = s.Name
				if err := record(true); err != nil {
					return err
				}
				return lines.Encode(line)
			})
		})
		if err != nil || !c.Follow {
			if ctx.Err() != nil && c.Follow {
				return nil // interrupted: the way to end it
			}
			return errors.Join(err, record(false))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// shards returns the shards whose logs are printed.
func (c *logCmd) shards(cluster *shards.Cluster) ([]*shards.Shard, error) {
	partition := c.Partition
	if c.User != "" {
		of := cluster.PartitionOf(c.User)
		partition = &of
	}
	if partition == nil {
		return cluster.Shards(), nil
	}
	s, err := operators.Holder(cluster, *partition)
	return []*shards.Shard{s}, err
}

func newLogLine(partition int, r *events.Record) logLine {
	l := logLine{Partition: partition, Position: r.String(), AppendedAt: r.AppendedAt.UTC()}
	if r.Damage != nil {
		l.Damage = r.Damage.Error()
	}
	if eventbatch.IsJSON(r.Payload) {
		l.Event = r.Payload
	} else {
		l.Payload = r.Payload
	}
	return l
}

// lagCmd is `badged lag`.
type lagCmd struct {
	config.Database `embed:""`
	JSON            bool `name:"json" help:"Print JSON." env:"-"`
}

// lagCount limits how many rows of events `badged lag` counts in one partition.
const lagCount = 1_000_000

// Run prints the lag of every partition.
func (c *lagCmd) Run(ctx context.Context, streams Streams) error {
	cluster, err := connect.Shards(ctx, c.Database, streams.Err)
	if err != nil {
		return err
	}
	defer cluster.Close()
	lags, err := operators.Lag(ctx, cluster, lagCount)
	if len(lags.Partitions) == 0 && err != nil {
		return err
	}
	if c.JSON {
		return errors.Join(err, terminal.PrintJSON(streams.Out, lags))
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
	for _, o := range lags.Open {
		fmt.Fprintf(streams.Out, "%sOpen transaction: %s.\n", connect.Prefix(o.Shard), o.Text)
	}
	for _, w := range lags.Waiting {
		fmt.Fprintf(streams.Out, "Waiting on shard %s for shard %s: %s to rooms, the oldest for %.1f seconds.\n", w.On, w.For, terminal.Counted(w.Messages, "message"), w.Seconds)
	}
	return nil
}
