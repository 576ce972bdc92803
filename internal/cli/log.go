package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/cli/connect"
	"github.com/badged/badged/internal/cli/terminal"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/log/eventbatch"
	"github.com/badged/badged/internal/operations"
	"github.com/badged/badged/internal/server/config"
	"github.com/badged/badged/internal/user/logview"
)

type logCmd struct {
	config.Database `embed:""`
	Partition       *int      `help:"Print only this partition." placeholder:"N" env:"-"`
	User            string    `help:"Print only events for this user, and messages to rooms while the user is a member." placeholder:"ID" env:"-"`
	Conversation    string    `help:"Print only events in this conversation." placeholder:"ID" env:"-"`
	PublishedBy     string    `help:"Print only events that were published over HTTP with the key of this name." placeholder:"NAME" env:"-"`
	Since           time.Time `help:"Print only events appended at this time, such as 2026-01-31T23:59:59Z, or later." placeholder:"TIME" env:"-"`
	Until           time.Time `help:"Print only events appended at this time or earlier." placeholder:"TIME" env:"-"`
	Follow          bool      `short:"f" help:"After the last event, print further events as they are folded." env:"-"`
}

// logLine is an event as `badged log` prints it.
type logLine struct {
	Partition  int             `json:"partition"`
	Shard      string          `json:"shard,omitempty"`
	Position   string          `json:"position"`
	AppendedAt time.Time       `json:"appended_at"`
	Event      json.RawMessage `json:"event,omitempty"`
	// Payload is set instead of Event if the event is not JSON. If a row of the log could
	// not be split into events, Damage says why, and Event or Payload is the whole row.
	Payload []byte `json:"payload_base64,omitempty"`
	Damage  string `json:"damage,omitempty"`
}

// followInterval is the pause between two reads of `badged log --follow`.
const followInterval = 200 * time.Millisecond

// Validate checks the ids and that --since is not after --until.
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

// Run prints the events of the log, one line of JSON for each.
func (c *logCmd) Run(ctx context.Context, streams Streams) error {
	dbs, closeCluster, err := connect.Follow(ctx, c.Database, streams.Err)
	if err != nil {
		return err
	}
	defer closeCluster()
	filter := logview.Filter{User: c.User, Conversation: c.Conversation, PublishedBy: c.PublishedBy, Since: c.Since, Until: c.Until}
	record := func(bool) error { return nil } // record writes one audit entry that the user's events are read; its argument is true if the user has events
	if c.User != "" {
		shard, err := dbs.HomeOf(c.User)
		if err != nil {
			return err
		}
		record = func(known bool) error {
			record = func(bool) error { return nil }
			return recordRead(ctx, shard.Pool, streams, operations.ReadLog, c.User, known)
		}
	}
	switch {
	case c.Partition != nil && dbs.CheckPartition(*c.Partition) != nil:
		return dbs.CheckPartition(*c.Partition)
	case c.Partition != nil && c.User != "" && *c.Partition != dbs.PartitionOf(filter.User):
		return fmt.Errorf("the user %q is in partition %d, not %d", filter.User, dbs.PartitionOf(filter.User), *c.Partition)
	}
	databases, err := c.shards(dbs)
	if err != nil {
		return err
	}
	lines := json.NewEncoder(streams.Out)
	lines.SetEscapeHTML(false)
	views := map[*cluster.Database]*logview.View{}
	for _, s := range databases {
		filter.Partitions = s.Held()
		if c.Partition != nil {
			filter.Partitions = []int{*c.Partition}
		}
		views[s] = logview.New(s.Pool, s.Log, filter)
	}
	for {
		err := dbs.EachOf(ctx, databases, func(s *cluster.Database) error {
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
				return nil // the command was interrupted, which is the normal end of --follow
			}
			return errors.Join(err, record(false))
		}
		if wait.For(ctx, followInterval) != nil {
			return nil
		}
	}
}

// shards returns the databases that have the selected events.
func (c *logCmd) shards(dbs *cluster.Cluster) ([]*cluster.Database, error) {
	partition := c.Partition
	if c.User != "" {
		of := dbs.PartitionOf(c.User)
		partition = &of
	}
	if partition == nil {
		return dbs.Databases(), nil
	}
	s, err := dbs.Holder(*partition)
	return []*cluster.Database{s}, err
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

type lagCmd struct {
	config.Database `embed:""`
	JSON            bool `name:"json" help:"Print JSON." env:"-"`
}

// lagCount is the number of rows per partition after which `badged lag` stops counting events.
const lagCount = 1_000_000

// Run prints the lag of every partition.
func (c *lagCmd) Run(ctx context.Context, streams Streams) error {
	dbs, err := connect.Databases(ctx, c.Database, streams.Err)
	if err != nil {
		return err
	}
	defer dbs.Close()
	lags, err := operations.ReadLag(ctx, dbs, lagCount)
	if len(lags.Partitions) == 0 && err != nil {
		return err
	}
	if c.JSON {
		return errors.Join(err, terminal.PrintJSON(streams.Out, lags))
	}
	return errors.Join(err, printLag(streams, lags))
}

func printLag(streams Streams, lags operations.Lag) error {
	table := tabwriter.NewWriter(streams.Out, 0, 0, 2, ' ', 0)
	for i, l := range lags.Partitions {
		if i == 0 {
			fmt.Fprintln(table, "PARTITION\tHEAD\tFOLDED\tEVENTS BEHIND\tSECONDS BEHIND\tOWNER"+connect.After("SHARD", l.Shard))
		}
		behind := fmt.Sprint(l.EventsBehind)
		if l.EventsBehind >= lagCount {
			behind += " or more"
		}
		owner := l.Owner
		if owner == "" {
			owner = "none"
		}
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%.1f\t%s%s\n", l.Partition, l.Head, l.Folded, behind, l.SecondsBehind, owner, connect.After(l.Shard, l.Shard))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("print the lag: %w", err)
	}
	for _, l := range lags.Partitions {
		if l.Notifier != "" {
			fmt.Fprintf(streams.Out, "Devices and webhooks were notified of the events up to %s of partition %d.\n", l.Notifier, l.Partition)
		}
	}
	for _, o := range lags.Open {
		fmt.Fprintf(streams.Out, "%sOpen transaction: %s.\n", connect.Prefix(o.Shard), o.Text)
	}
	for _, w := range lags.Waiting {
		fmt.Fprintf(streams.Out, "Shard %s stores messages for shard %s: %s to rooms, the oldest for %.1f seconds.\n", w.On, w.For, terminal.Counted(w.Messages, "message"), w.Seconds)
	}
	return nil
}
