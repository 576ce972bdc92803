package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/admin"
	"github.com/badged/badged/internal/config"
	"github.com/badged/badged/internal/operators"
	"github.com/badged/badged/internal/progress"
	"github.com/badged/badged/internal/shards"
	"github.com/badged/badged/projector/replay"
)

// verifyCmd is `badged verify`.
type verifyCmd struct {
	config.Database `embed:""`
	Partition       *int     `help:"Only this partition." placeholder:"N" env:"-"`
	User            []string `help:"Only this user; may be given more than once." sep:"none" placeholder:"USER" env:"-"`
	Sample          int      `help:"Only N users, drawn at random from the tables." placeholder:"N" env:"-"`
	archived        `embed:""`
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
	cluster, err := openShards(ctx, c.Database)
	if err != nil {
		return err
	}
	defer cluster.Close()
	if c.Partition != nil && (*c.Partition < 0 || *c.Partition >= cluster.Partitions()) {
		return fmt.Errorf("--partition must be from 0 to %d", cluster.Partitions()-1)
	}
	var watched io.Writer
	if !c.Quiet {
		watched = streams.Err
	}
	meter := progress.New(watched, "verify", nil)
	defer meter.Close()
	parts, err := operators.Verifications(cluster, admin.VerifyOptions{Partition: c.Partition, Users: c.User, Sample: c.Sample})
	if err != nil {
		return err
	}
	var sum admin.Verified
	var errs []error
	for _, part := range parts {
		errs = append(errs, operators.EachOf(ctx, cluster, []*shards.Shard{part.Shard}, func(s *shards.Shard) error {
			archive, err := c.open(ctx, s)
			if err != nil {
				return err
			}
			done, err := admin.Verify(ctx, replay.NewVerifier(s.Pool, s.Log).WithArchive(archive), s.Log, part.Options, meter, func(d replay.Difference) {
				meter.Lines()
				c.print(streams.Out, s, d)
			})
			sum.Add(done)
			return err
		}))
	}
	meter.Close()
	if err := errors.Join(errs...); err != nil && (sum.Partitions == 0 || !cluster.Sharded()) {
		return err
	}
	return errors.Join(append(errs, c.finish(streams.Out, sum))...)
}

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
	fmt.Fprintln(w, prefixOf(s)+d.String())
}

// finish prints the summary and fails if there are differences.
func (c *verifyCmd) finish(w io.Writer, sum admin.Verified) error {
	var err error
	if c.JSON {
		err = json.NewEncoder(w).Encode(sum)
	} else {
		_, err = fmt.Fprintf(w, "%s and %s of %s compared with the log: %s\n",
			counted(sum.Users, "user"), counted(sum.Conversations, "conversation"),
			counted(int64(sum.Partitions), "partition"), differences(sum.Differences))
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
	return counted(n, "difference")
}

// counted returns a number with its noun, such as "1,000 users".
func counted(n int64, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return progress.Count(n) + " " + thing
}
