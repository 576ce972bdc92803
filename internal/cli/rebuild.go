package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/progress"
	"github.com/badged/badged/internal/cli/archives"
	"github.com/badged/badged/internal/cli/connect"
	"github.com/badged/badged/internal/cli/terminal"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/operations"
	"github.com/badged/badged/internal/partition/claims"
	"github.com/badged/badged/internal/partition/rebuild"
	"github.com/badged/badged/internal/partition/replay"
	"github.com/badged/badged/internal/server/config"
	"github.com/badged/badged/pubsub"
)

type rebuildCmd struct {
	config.Database `embed:""`
	Partition       *int     `help:"Process only this partition." placeholder:"N" env:"-"`
	User            string   `help:"Only this user: the user's rows are corrected in the current tables." placeholder:"USER" env:"-"`
	Anew            bool     `help:"Start with the first partition, even if an earlier rebuild was interrupted." env:"-"`
	MaxLoad         float64  `help:"The part of the time, from 0.01 to 1, in which the rebuild works; otherwise it pauses." default:"1" env:"-"`
	RedisURL        string   `name:"redis-url" help:"URL of the servers' Redis, to update the clients of corrected users at once." placeholder:"URL"`
	BusKey          []string `help:"The same secrets as of the servers. The first secret signs the updates." placeholder:"SECRET"`
	archives.Given  `embed:""`
	JSON            bool `name:"json" help:"Print JSON: one line for each partition, and a last line with the summary." env:"-"`
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

// Run corrects the tables, and prints how they differed from the log. The command does not fail
// because of differences, since it corrects them.
func (c *rebuildCmd) Run(ctx context.Context, streams Streams) (err error) {
	dbs, err := connect.Databases(ctx, c.Database, streams.Err)
	if err != nil {
		return err
	}
	defer dbs.Close()
	if c.Partition != nil {
		if err := dbs.CheckPartition(*c.Partition); err != nil {
			return fmt.Errorf("--partition: %w", err)
		}
	}
	var bus pubsub.Bus // nil without Redis
	if c.RedisURL != "" {
		redis, err := pubsub.NewRedis(pubsub.RedisConfig{URL: c.RedisURL, Keys: c.BusKey})
		if err != nil {
			return fmt.Errorf("--redis-url: %w", err)
		}
		defer func() { err = errors.Join(err, redis.Close()) }()
		bus = redis
	}
	databases, err := operations.RebuildTargets(dbs, c.arguments())
	if err != nil {
		return err
	}
	var sum operations.Rebuilt
	err = dbs.EachOf(ctx, databases, func(s *cluster.Database) error {
		archive, err := c.Open(ctx, dbs, s)
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
			known, err := operations.Known(ctx, s, c.User)
			if err != nil {
				return err
			}
			if !known { // badged has no data of the user: record the id only if rows were healed
				arguments.User = ""
			}
		}
		return operations.Audited(ctx, s.Pool, operations.OSUser(), "rebuild", arguments, func(ctx context.Context) (any, error) {
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
	if c.User != "" || err != nil && !isPartial(ctx, err) {
		return err
	}
	return errors.Join(err, c.finish(streams.Out, sum))
}

// AfterInterruption returns what the operator should do after an interruption.
func (c *rebuildCmd) AfterInterruption() string {
	if c.User != "" || c.Partition != nil {
		return ""
	}
	return "The finished partitions stay rebuilt; run the command again for the others."
}

// arguments returns the arguments that the audit trail records.
func (c *rebuildCmd) arguments() operations.RebuildOptions {
	return operations.RebuildOptions{Partition: c.Partition, User: c.User, Anew: c.Anew, MaxLoad: c.MaxLoad}
}

// rebuild rebuilds one partition or all partitions of a database, and prints each partition whose
// tables differed from the log.
func (c *rebuildCmd) rebuild(ctx context.Context, streams Streams, s *cluster.Database, cfg rebuild.Config) (operations.Rebuilt, error) {
	meter, warn := metered(streams, connect.Prefix(s.Name)+"rebuild", c.Quiet)
	defer meter.Close()
	defer connect.Watch(ctx, s, warn)()
	var written error
	cfg.Partition, cfg.Anew, cfg.MaxLoad = c.Partition, c.Anew, c.MaxLoad
	sum, err := operations.Rebuild(ctx, cfg, meter, func(p rebuild.Result) {
		if c.JSON || p.DifferentUsers > 0 {
			meter.Lines()
			written = errors.Join(written, c.print(streams.Out, p, connect.Prefix(s.Name)))
		}
	})
	meter.Close()
	return sum, errors.Join(err, written)
}

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

func (c *rebuildCmd) finish(w io.Writer, sum operations.Rebuilt) error {
	if c.JSON {
		return json.NewEncoder(w).Encode(sum)
	}
	result := "no difference, nothing was changed"
	if sum.DifferentUsers > 0 {
		result = fmt.Sprintf("%s corrected, %s with a new epoch", terminal.Counted(sum.DifferentUsers, "user"), terminal.Counted(int64(sum.NewEpochs), "partition"))
	}
	_, err := fmt.Fprintf(w, "%s and %s of %s rebuilt from the log: %s%s\n",
		terminal.Counted(sum.Users, "user"), terminal.Counted(sum.Conversations, "conversation"), terminal.Counted(int64(sum.Partitions), "partition"), result, notFolded(sum.NotFolded))
	return err
}

func (c *rebuildCmd) heal(ctx context.Context, out io.Writer, v *replay.Verifier, partition int, bus pubsub.Bus) (operations.Healed, error) {
	did, err := operations.Heal(ctx, v, partition, c.User, bus)
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

// metered returns a progress meter for a command, and a function that prints a line. If quiet is
// true, the meter prints nothing, but the function still prints.
func metered(streams Streams, name string, quiet bool) (m *progress.Meter, warn func(text string)) {
	if quiet {
		return progress.New(nil, name, nil), func(text string) { fmt.Fprintf(streams.Err, "%s: %s\n", name, text) }
	}
	m = progress.New(streams.Err, name, nil)
	return m, m.Note
}

type verifyCmd struct {
	config.Database `embed:""`
	Partition       *int     `help:"Process only this partition." placeholder:"N" env:"-"`
	User            []string `help:"Process only this user. Repeat the flag for several users." sep:"none" placeholder:"USER" env:"-"`
	Sample          *int     `help:"Process only N users, drawn at random from the tables." placeholder:"N" env:"-"`
	archives.Given  `embed:""`
	JSON            bool `name:"json" help:"Print JSON: one line for each difference, and a last line with the summary." env:"-"`
	Quiet           bool `short:"q" help:"Show no progress." env:"-"`
}

// Validate implements kong's validation.
func (c *verifyCmd) Validate() error {
	errs := []error{c.Database.Validate()}
	if len(c.User) > 0 && (c.Sample != nil || c.Partition != nil) {
		errs = append(errs, errors.New("--user cannot be combined with --sample or --partition"))
	}
	for _, u := range c.User {
		if reason := events.CheckID(u); reason != "" {
			errs = append(errs, fmt.Errorf("--user %s", reason))
		}
	}
	if c.Sample != nil && *c.Sample < 1 {
		errs = append(errs, errors.New("--sample must be 1 or more"))
	}
	return errors.Join(errs...)
}

// Run compares the tables with the log and prints each difference. It fails if there is any
// difference.
func (c *verifyCmd) Run(ctx context.Context, streams Streams) error {
	dbs, err := connect.Databases(ctx, c.Database, streams.Err)
	if err != nil {
		return err
	}
	defer dbs.Close()
	if c.Partition != nil {
		if err := dbs.CheckPartition(*c.Partition); err != nil {
			return fmt.Errorf("--partition: %w", err)
		}
	}
	meter, warn := metered(streams, "verify", c.Quiet)
	defer meter.Close()
	options := operations.VerifyOptions{Partition: c.Partition, Users: c.User}
	if c.Sample != nil {
		options.Sample = *c.Sample
	}
	parts, err := operations.VerifyTargets(dbs, options)
	if err != nil {
		return err
	}
	var databases []*cluster.Database // nil means all databases
	if c.Partition != nil || len(c.User) > 0 {
		databases = slices.DeleteFunc(slices.Clone(dbs.Databases()), func(s *cluster.Database) bool { _, ok := parts[s]; return !ok })
	}
	var sum operations.Verified
	var incomplete []error
	err = dbs.EachOf(ctx, databases, func(s *cluster.Database) error {
		part, ok := parts[s]
		if !ok {
			return nil
		}
		archive, err := c.Open(ctx, dbs, s)
		if err != nil {
			return err
		}
		incomplete = append(incomplete, claims.WantErased(ctx, s.Pool, archive))
		if c.Archive != "" {
			incomplete = append(incomplete, archives.WarnLost(ctx, streams.Err, s, "its tables are compared with the baseline and the log only"))
		}
		defer connect.Watch(ctx, s, warn)()
		done, err := operations.Verify(ctx, replay.NewVerifier(s.Pool, s.Log).WithArchive(archive), s.Log, part, meter, func(d replay.Difference) {
			meter.Lines()
			c.print(streams.Out, s, d)
		})
		sum.Add(done)
		return err
	})
	meter.Close()
	if err != nil && !isPartial(ctx, err) {
		return err
	}
	return errors.Join(append([]error{err, c.finish(streams.Out, sum)}, incomplete...)...)
}

// isPartial reports whether a command failed only on some databases, and was not interrupted. Such
// a command still prints the result of the other databases.
func isPartial(ctx context.Context, err error) bool {
	_, partial := errors.AsType[*cluster.PartialFailure](err)
	return partial && ctx.Err() == nil
}

// AfterInterruption returns what the operator should know after an interruption.
func (c *verifyCmd) AfterInterruption() string { return "Not everything was compared." }

// shardDifference is a difference, with the name of the shard.
type shardDifference struct {
	Shard string `json:"shard,omitempty"`
	replay.Difference
}

func (c *verifyCmd) print(w io.Writer, s *cluster.Database, d replay.Difference) {
	if c.JSON {
		_ = json.NewEncoder(w).Encode(shardDifference{s.Name, d}) // if writing fails, finish also fails and reports it
		return
	}
	fmt.Fprintln(w, connect.Prefix(s.Name)+d.String())
}

// finish prints the summary. It fails if there are differences.
func (c *verifyCmd) finish(w io.Writer, sum operations.Verified) error {
	var err error
	if c.JSON {
		err = json.NewEncoder(w).Encode(sum)
	} else {
		_, err = fmt.Fprintf(w, "%s and %s of %s compared with the log: %s%s\n",
			terminal.Counted(sum.Users, "user"), terminal.Counted(sum.Conversations, "conversation"),
			terminal.Counted(int64(sum.Partitions), "partition"), differences(sum.Differences), notFolded(sum.NotFolded))
	}
	if err == nil && sum.Differences > 0 {
		err = fmt.Errorf("the tables differ from the log: %s", differences(sum.Differences))
	}
	return err
}

// notFolded returns a text that says that n events of the log are not folded yet, or "" if n is 0.
func notFolded(n int64) string {
	switch n {
	case 0:
		return ""
	case 1:
		return "; 1 event is not folded yet"
	}
	return fmt.Sprintf("; %s events are not folded yet", progress.Count(n))
}

func differences(n int64) string {
	if n == 0 {
		return "no difference"
	}
	return terminal.Counted(n, "difference")
}
