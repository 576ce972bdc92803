package cli

import (
	"context"
	"errors"

	"github.com/badged/badged/internal/config"
	"github.com/badged/badged/internal/traffic"
)

// loadCmd is `badged load`.
type loadCmd struct {
	File         string   `arg:"" optional:"" help:"Traffic: lines 'SRC DST UNIXTS', or CloudEvents as NDJSON; .gz and .zst are decompressed; - is standard input."`
	Rooms        int      `help:"Generate traffic of so many rooms instead of reading a file." placeholder:"N" env:"-"`
	Members      int      `help:"Members of the largest room, with --rooms; the n-th has an n-th of that." default:"1000" env:"-"`
	Messages     int      `help:"Messages to all rooms, with --rooms." default:"10000" env:"-"`
	Seed         uint64   `help:"Which traffic is generated, with --rooms: equal settings give equal events." default:"1" env:"-"`
	URL          string   `name:"url" help:"A running server to publish to." placeholder:"URL"`
	PublisherKey string   `help:"Secret of a publisher, with --url." placeholder:"SECRET"`
	DatabaseURL  string   `help:"Postgres to append to directly, instead of --url; a projector must be running." placeholder:"URL"`
	Shards       []string `name:"shard" env:"BADGED_SHARDS" sep:"\n" help:"One of several databases to append to directly, as of migrate up; repeat it for each." placeholder:"NAME=URL"`
	BatchSize    int      `help:"Events published at once, 1 to 5000." default:"1000"`
	InFlight     int      `help:"Batches published at a time, 1 to 64." default:"4"`
	JSON         bool     `name:"json" help:"Print the summary as JSON." env:"-"`
	Quiet        bool     `short:"q" help:"Show no progress." env:"-"`
}

// Validate implements kong's validation.
func (c *loadCmd) Validate() error {
	switch {
	case c.File == "" && c.Rooms == 0:
		return errors.New("a file of traffic is required, or --rooms")
	case c.File != "" && c.Rooms != 0:
		return errors.New("--rooms generates traffic: it takes no file")
	case c.URL == "" && c.DatabaseURL == "" && len(c.Shards) == 0:
		return errors.New("a target is required: --url (BADGED_URL) with --publisher-key, or --database-url (BADGED_DATABASE_URL)")
	case c.URL != "" && c.PublisherKey == "":
		return errors.New("--url requires --publisher-key (BADGED_PUBLISHER_KEY)")
	case c.URL == "":
		return config.Database{DatabaseURL: c.DatabaseURL, Shards: c.Shards}.Validate()
	}
	return nil
}

// Run loads the file and prints the summary.
func (c *loadCmd) Run(ctx context.Context, streams Streams) error {
	target, closeTarget, err := c.target(ctx)
	if err != nil {
		return err
	}
	defer closeTarget()
	cfg := traffic.Config{
		File: c.File, Stdin: streams.In, Target: target,
		BatchSize: c.BatchSize, InFlight: c.InFlight,
	}
	if c.Rooms != 0 {
		cfg.Rooms = &traffic.RoomTraffic{Rooms: c.Rooms, Members: c.Members, Messages: c.Messages, Seed: c.Seed}
	}
	if !c.Quiet {
		cfg.Progress = streams.Err
	}
	summary, err := traffic.Load(ctx, cfg)
	if err != nil && summary.Events == 0 {
		return err
	}
	var printErr error
	if c.JSON {
		printErr = printJSON(streams.Out, summary)
	} else {
		printErr = summary.Print(streams.Out)
	}
	return errors.Join(err, printErr)
}

func (c *loadCmd) target(ctx context.Context) (traffic.Target, func(), error) {
	if c.URL != "" {
		t, err := traffic.NewHTTPTarget(c.URL, c.PublisherKey)
		if err != nil {
			return nil, nil, err
		}
		return t, t.Close, nil
	}
	cluster, closeCluster, err := followShards(ctx, config.Database{DatabaseURL: c.DatabaseURL, Shards: c.Shards})
	if err != nil {
		return nil, nil, err
	}
	return traffic.NewClusterTarget(cluster), closeCluster, nil
}
