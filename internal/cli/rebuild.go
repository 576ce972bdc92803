package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/admin"
	"github.com/badged/badged/internal/cli/archives"
	"github.com/badged/badged/internal/cli/connect"
	"github.com/badged/badged/internal/cli/terminal"
	"github.com/badged/badged/internal/config"
	"github.com/badged/badged/internal/operators"
	"github.com/badged/badged/internal/progress"
	"github.com/badged/badged/internal/shards"
	"github.com/badged/badged/projector/archiving"
	"github.com/badged/badged/projector/rebuild"
	"github.com/badged/badged/projector/replay"
	"github.com/badged/badged/pubsub"
)

// rebuildCmd is `badged rebuild`.
type rebuildCmd struct {
	config.Database `embed:""`
	Partition       *int     `help:"Only this partition." placeholder:"N" env:"-"`
	User            string   `help:"Only this user, whose rows are healed in place." placeholder:"USER" env:"-"`
	Anew            bool     `help:"Start with the first partition, even if an earlier rebuild was interrupted." env:"-"`
	MaxLoad         float64  `help:"Share of the time, from 0.01 to 1, spent working rather than pausing." default:"1" env:"-"`
	RedisURL        string   `name:"redis-url" help:"Redis of the servers, to update the clients of corrected users at once." placeholder:"URL"`
	BusKey          []string `help:"Secrets of the servers; the first signs the updates." placeholder:"SECRET"`
	archives.Given  `embed:""`
	JSON            bool `name:"json" help:"Print JSON: a line for each partition, and one with the summary." env:"-"`
	Quiet           bool `short:"q" help:"Show no progress." env:"-"`
}

// Validate implements kong's validation.
func (c *rebuildCmd) Validate() error {
	errs := []error{c.Database.Validate(), config.ValidateBusKey(c.BusKey)}
	if c.User != "" {
		if c.Partition != nil || c.Anew {
			errs = append(errs, errors.New("--user cannot be combined with --partition or --anew"))
		}
		if reason := events.CheckID(c.User); reason != "" {
			errs = append(errs, fmt.Errorf("--user %s", reason))
		}
	}
	if c.Partition != nil && c.Anew {
		errs = append(errs, errors.New("--anew cannot be combined with --partition"))
	}
	if !(c.MaxLoad >= 0.01 && c.MaxLoad <= 1) {
		errs = append(errs, errors.New("--max-load must be from 0.01 to 1"))
	}
	return errors.Join(errs...)
}

// Run corrects the tables and prints how they differed from the log. A
// corrected difference is not a failure.
func (c *rebuildCmd) Run(ctx context.Context, streams Streams) (err error) {
	cluster, err := connect.Shards(ctx, c.Database, streams.Err)
	if err != nil {
		return err
	}
	defer cluster.Close()
	if c.Partition != nil {
		if err := cluster.CheckPartition(*c.Partition); err != nil {
			return fmt.Errorf("--partition: %w", err)
		}
	}
	var bus pubsub.Bus // stays nil without Redis
	if c.RedisURL != "" {
		redis, err := pubsub.NewRedis(pubsub.RedisConfig{URL: c.RedisURL, Keys: c.BusKey})
		if err != nil {
			return fmt.Errorf("--redis-url: %w", err)
		}
		defer func() { err = errors.Join(err, redis.Close()) }()
		bus = redis
	}
	some, err := operators.Rebuilt(cluster, c.arguments())
	if err != nil {
		return err
	}
	var sum admin.Rebuilt
	err = operators.EachOf(ctx, cluster, some, func(s *shards.Shard) error {
		archive, err := c.Open(ctx, cluster, s)
		if err != nil {
			return err
		}
		c.Warn(ctx, streams.Err, s, archive)
		if c.Archive != "" {
			if err := archives.WarnLost(ctx, streams.Err, s, "its tables are rebuilt from the baseline and the log only"); err != nil {
				return err
			}
		}
		arguments := c.arguments()
		if c.User != "" {
			known, err := admin.Known(ctx, s.Pool, s.Log, c.User)
			if err != nil {
				return err
			}
			if !known { // what is healed nevertheless is in the result
				arguments.User = ""
			}
		}
		return admin.Audited(ctx, s.Pool, admin.OSUser(), "rebuild", arguments, func(ctx context.Context) (any, error) {
			if c.User != "" {
				done, err := c.heal(ctx, streams.Out, replay.NewVerifier(s.Pool, s.Log).WithArchive(archive), s.Log.PartitionOf(c.User), bus)
				if arguments.User == "" && !done.Healed {
					done.UserID = ""
				}
				return done, err
			}
			done, err := c.rebuild(ctx, streams, s, rebuild.Config{Pool: s.Pool, Log: s.Log, Bus: bus, Archive: archive})
			sum.AddAll(done)
			return done, err
		})
	})
	if c.Partition == nil && c.User == "" {
		err = errors.Join(err, operators.Lost(cluster))
	}
	if c.User != "" || err != nil && (sum.Partitions == 0 || !cluster.Sharded() || ctx.Err() != nil) {
		return err
	}
	return errors.Join(err, c.finish(streams.Out, sum))
}

// AfterInterruption says what to do then.
func (c *rebuildCmd) AfterInterruption() string {
	if c.User != "" || c.Partition != nil {
		return ""
	}
	return "The partitions that are done stay so; run it again for the others."
}

// arguments are the arguments in the audit trail.
func (c *rebuildCmd) arguments() admin.RebuildOptions {
	return admin.RebuildOptions{Partition: c.Partition, User: c.User, Anew: c.Anew, MaxLoad: c.MaxLoad}
}

// rebuild rebuilds one or all partitions of a shard.
func (c *rebuildCmd) rebuild(ctx context.Context, streams Streams, s *shards.Shard, cfg rebuild.Config) (admin.Rebuilt, error) {
	meter, warn := metered(streams, connect.Prefix(s.Name)+"rebuild", c.Quiet)
	defer meter.Close()
	defer connect.Watch(ctx, s, warn)()
	var written error
	cfg.Partition, cfg.Anew, cfg.MaxLoad = c.Partition, c.Anew, c.MaxLoad
	sum, err := admin.Rebuild(ctx, cfg, meter, func(p rebuild.Result) {
		if c.JSON || p.DifferentUsers > 0 {
			meter.Lines()
			written = errors.Join(written, c.print(streams.Out, p, connect.Prefix(s.Name)))
		}
	})
	meter.Close()
	return sum, errors.Join(err, written)
}

// print prints the result for a partition.
func (c *rebuildCmd) print(w io.Writer, p rebuild.Result, prefix string) error {
	if c.JSON {
		return json.NewEncoder(w).Encode(p)
	}
	_, err := fmt.Fprintf(w, "%spartition %d: %s of %s differed from the log; it has new tables and a new epoch\n",
		prefix, p.Partition, progress.Count(p.DifferentUsers), terminal.Counted(p.Users, "user"))
	for _, d := range p.First {
		_, lineErr := fmt.Fprintf(w, "  %s\n", d)
		err = errors.Join(err, lineErr)
	}
	return err
}

// finish prints the summary.
func (c *rebuildCmd) finish(w io.Writer, sum admin.Rebuilt) error {
	if c.JSON {
		return json.NewEncoder(w).Encode(sum)
	}
	result := "no difference, nothing was changed"
	if sum.DifferentUsers > 0 {
		result = fmt.Sprintf("%s corrected, %s with a new epoch", terminal.Counted(sum.DifferentUsers, "user"), terminal.Counted(int64(sum.NewEpochs), "partition"))
	}
	_, err := fmt.Fprintf(w, "%s and %s of %s rebuilt from the log: %s\n",
		terminal.Counted(sum.Users, "user"), terminal.Counted(sum.Conversations, "conversation"), terminal.Counted(int64(sum.Partitions), "partition"), result)
	return err
}

// heal heals the rows of the user.
func (c *rebuildCmd) heal(ctx context.Context, out io.Writer, v *replay.Verifier, partition int, bus pubsub.Bus) (admin.Healed, error) {
	did, err := admin.Heal(ctx, v, partition, c.User, bus)
	if err != nil {
		return did, err
	}
	if c.JSON {
		return did, json.NewEncoder(out).Encode(did)
	}
	for _, d := range did.Differences {
		_, lineErr := fmt.Fprintln(out, d)
		err = errors.Join(err, lineErr)
	}
	result := "matches the log, nothing was changed"
	if did.Healed {
		result = fmt.Sprintf("was healed in version %d", did.Version)
	}
	_, lineErr := fmt.Fprintf(out, "user %q %s\n", c.User, result)
	return did, errors.Join(err, lineErr)
}

// metered returns a meter of the progress of a command, which shows nothing if that is
// quiet, and what prints a line beside it in any case.
func metered(streams Streams, name string, quiet bool) (m *progress.Meter, warn func(text string)) {
	if quiet {
		return progress.New(nil, name, nil), func(text string) { fmt.Fprintf(streams.Err, "%s: %s\n", name, text) }
	}
	m = progress.New(streams.Err, name, nil)
	return m, m.Note
}

// verifyCmd is `badged verify`.
type verifyCmd struct {
	config.Database `embed:""`
	Partition       *int     `help:"Only this partition." placeholder:"N" env:"-"`
	User            []string `help:"Only this user; may be given more than once." sep:"none" placeholder:"USER" env:"-"`
	Sample          int      `help:"Only N users, drawn at random from the tables." placeholder:"N" env:"-"`
	archives.Given  `embed:""`
	JSON            bool `name:"json" help:"Print JSON: a line for each difference, and one with the summary." env:"-"`
	Quiet           bool `short:"q" help:"Show no progress." env:"-"`
}

// Validate implements kong's validation.
func (c *verifyCmd) Validate() error {
	errs := []error{c.Database.Validate()}
	if len(c.User) > 0 && (c.Sample != 0 || c.Partition != nil) {
		errs = append(errs, errors.New("--user cannot be combined with --sample or --partition"))
	}
	for _, u := range c.User {
		if reason := events.CheckID(u); reason != "" {
			errs = append(errs, fmt.Errorf("--user %s", reason))
		}
	}
	if c.Sample < 0 {
		errs = append(errs, errors.New("--sample must be 1 or more"))
	}
	return errors.Join(errs...)
}

// Run compares the tables with the log and prints each difference. It fails if
// there are any.
func (c *verifyCmd) Run(ctx context.Context, streams Streams) error {
	cluster, err := connect.Shards(ctx, c.Database, streams.Err)
	if err != nil {
		return err
	}
	defer cluster.Close()
	if c.Partition != nil {
		if err := cluster.CheckPartition(*c.Partition); err != nil {
			return fmt.Errorf("--partition: %w", err)
		}
	}
	meter, warn := metered(streams, "verify", c.Quiet)
	defer meter.Close()
	parts, err := operators.Verifications(cluster, admin.VerifyOptions{Partition: c.Partition, Users: c.User, Sample: c.Sample})
	if err != nil {
		return err
	}
	var sum admin.Verified
	var errs, incomplete []error
	for _, part := range parts {
		errs = append(errs, operators.EachOf(ctx, cluster, []*shards.Shard{part.Shard}, func(s *shards.Shard) error {
			archive, err := c.Open(ctx, cluster, s)
			if err != nil {
				return err
			}
			incomplete = append(incomplete, archiving.WantErased(ctx, s.Pool, archive))
			if c.Archive != "" {
				incomplete = append(incomplete, archives.WarnLost(ctx, streams.Err, s, "its tables are compared with the baseline and the log only"))
			}
			defer connect.Watch(ctx, s, warn)()
			done, err := admin.Verify(ctx, replay.NewVerifier(s.Pool, s.Log).WithArchive(archive), s.Log, part.Options, meter, func(d replay.Difference) {
				meter.Lines()
				c.print(streams.Out, s, d)
			})
			sum.Add(done)
			return err
		}))
	}
	if c.Partition == nil && len(c.User) == 0 {
		errs = append(errs, operators.Lost(cluster))
	}
	meter.Close()
	if err := errors.Join(errs...); err != nil && (sum.Partitions == 0 || !cluster.Sharded() || ctx.Err() != nil) {
		return err
	}
	errs = append(append(errs, c.finish(streams.Out, sum)), incomplete...)
	return errors.Join(errs...)
}

// AfterInterruption says what to do then.
func (c *verifyCmd) AfterInterruption() string { return "Not everything was compared." }

// shardDifference is a difference on one of several shards.
type shardDifference struct {
	Shard string `json:"shard,omitempty"`
	replay.Difference
}

// print prints one difference.
func (c *verifyCmd) print(w io.Writer, s *shards.Shard, d replay.Difference) {
	if c.JSON {
		_ = json.NewEncoder(w).Encode(shardDifference{s.Name, d}) // finish reports a failed write
		return
	}
	fmt.Fprintln(w, connect.Prefix(s.Name)+d.String())
}

// finish prints the summary and fails if there are differences.
func (c *verifyCmd) finish(w io.Writer, sum admin.Verified) error {
	var err error
	if c.JSON {
		err = json.NewEncoder(w).Encode(sum)
	} else {
		_, err = fmt.Fprintf(w, "%s and %s of %s compared with the log: %s\n",
			terminal.Counted(sum.Users, "user"), terminal.Counted(sum.Conversations, "conversation"),
			terminal.Counted(int64(sum.Partitions), "partition"), differences(sum.Differences))
	}
	if err == nil && sum.Differences > 0 {
		err = fmt.Errorf("the tables differ from the log: %s", differences(sum.Differences))
	}
	return err
}

func differences(n int64) string {
	if n == 0 {
		return "no difference"
	}
	return terminal.Counted(n, "difference")
}
