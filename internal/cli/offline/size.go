package offline

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"

	"github.com/badged/badged/internal/base/progress"
	"github.com/badged/badged/internal/cli/terminal"
	"github.com/badged/badged/internal/pg/sizing"
)

// Size is `badged size`.
type Size struct {
	Users          float64 `help:"Number of users, such as 1e6." required:"" placeholder:"N" env:"-"`
	MessagesPerDay float64 `help:"Number of messages of all users in a day." required:"" placeholder:"N" env:"-"`
	Members        float64 `help:"Number of recipients of a message, on average." default:"3" env:"-"`
	Rooms          bool    `help:"Messages go to rooms, whose members badged knows." env:"-"`
	Push           float64 `help:"Part of the users who have a device that gets pushes, from 0 to 1." default:"0" env:"-"`
	Webhooks       float64 `help:"Number of webhooks that receive badges." default:"0" env:"-"`
	Reads          float64 `help:"Number of reads for each message that a user receives." default:"0.5" env:"-"`
	Conversations  float64 `help:"Number of conversations of a user, on average." default:"30" env:"-"`
	Connected      float64 `help:"Part of the users who are connected at the same time, from 0 to 1." default:"0.1" env:"-"`
	Peak           float64 `help:"The load in the busiest second, divided by the average load." default:"4" env:"-"`
	Single         bool    `help:"Each request publishes one event, not many events." env:"-"`
	LogDays        float64 `help:"Number of days after which events of the log are archived." default:"30" env:"-"`
	Cores          float64 `help:"Number of cores of a shard's Postgres server that may be used at the peak." default:"16" env:"-"`
	WAL            float64 `name:"wal" help:"Bytes of WAL per second that a shard's Postgres server can write." default:"200e6" env:"-"`
	Disk           float64 `help:"Bytes of disk of a shard." default:"4e12" env:"-"`
	JSON           bool    `name:"json" help:"Print JSON." env:"-"`
}

func (c *Size) load() sizing.Load {
	return sizing.Load{
		Users: c.Users, MessagesPerDay: c.MessagesPerDay, Members: c.Members, Reads: c.Reads, Conversations: c.Conversations,
		Connected: c.Connected, Peak: c.Peak, Single: c.Single, LogDays: c.LogDays, Cores: c.Cores,
		Rooms: c.Rooms, Push: c.Push, Webhooks: c.Webhooks, WAL: c.WAL, Disk: c.Disk,
	}
}

// Validate implements kong's validation.
func (c *Size) Validate() error { return c.load().Check() }

// Run prints the resources that the given load needs, as an estimate.
func (c *Size) Run(streams terminal.Streams) error {
	needs := sizing.Estimate(c.load())
	if c.JSON {
		return terminal.PrintJSON(streams.Out, needs)
	}
	return printSize(streams.Out, needs)
}

func printSize(w io.Writer, n sizing.Needs) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { // ignore errors of writing: Flush of the tabwriter returns them again
		_, _ = fmt.Fprintf(t, name+"\t"+format+"\n", args...)
	}
	count := func(v float64) string { return progress.Count(int64(math.Ceil(v))) }
	row("events", "%s/s on average, with changes for %s users/s", count(n.EventsPerSecond), count(n.ChangesPerSecond))
	shards := terminal.Counted(int64(n.Shards), "shard")
	if n.Shards > 1 {
		shards += ", for their " + n.LimitedBy
	}
	row("Postgres", "%.2f cores at the peak, %s", n.PostgresCores, shards)
	row("badged", "%.2f cores at the peak, for publishing, folding and webhooks", n.BadgedCores)
	row("WAL", "%s/s at the peak", terminal.Size(n.WALPerSecond))
	row("disk", "%s: users and conversations %s, event keys %s, log %s", terminal.Size(n.Tables+n.Keys+n.Log), terminal.Size(n.Tables), terminal.Size(n.Keys), terminal.Size(n.Log))
	row("Redis", "at most %s updates/s at the peak", count(n.RedisPerSecond))
	if n.PushesPerSecond > 0 {
		row("pushes", "at most %s/s at the peak", count(n.PushesPerSecond))
	}
	if n.CallsPerSecond > 0 {
		row("webhooks", "at most %s users/s at the peak", count(n.CallsPerSecond))
	}
	row("broker", "%s × badged ingest, if the events come from one", count(float64(n.Ingesting)))
	row("gateways", "%s processes for %s connections, %s", count(float64(n.Gateways)), count(n.Connections), terminal.Size(n.GatewayBytes))
	if err := t.Flush(); err != nil {
		return err
	}
	if !n.Fits {
		_, err := fmt.Fprintf(w, "\nThis does not fit %s shards, which are the most. Publish in bulk, use rooms for large groups, keep the log for a shorter time (--log-days), or take larger servers (--cores, --wal, --disk).\n",
			count(sizing.MaxShards))
		return err
	}
	return nil
}
