package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/config"
	"github.com/badged/badged/internal/progress"
	"github.com/badged/badged/projector"
)

// verifyCmd is `badged verify`.
type verifyCmd struct {
	config.Database `embed:""`
	Partition       *int     `help:"Only this partition." placeholder:"N" env:"-"`
	User            []string `help:"Only this user; may be given more than once." sep:"none" placeholder:"USER" env:"-"`
	Sample          int      `help:"Only so many users, drawn at random from the tables." placeholder:"N" env:"-"`
	JSON            bool     `name:"json" help:"Print JSON: a line for each difference, and one with the summary." env:"-"`
	Quiet           bool     `short:"q" help:"Show no progress." env:"-"`
}

// Validate implements kong's validation.
func (c *verifyCmd) Validate() error {
	errs := []error{c.Database.Validate()}
	if len(c.User) > 0 && (c.Sample != 0 || c.Partition != nil) {
		errs = append(errs, errors.New("--user goes with neither --sample nor --partition"))
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

// verified sums up a verification, as `badged verify --json` prints it last.
type verified struct {
	Partitions int `json:"partitions"`
	// Users and Conversations are how many the log says something of.
	Users         int64 `json:"users"`
	Conversations int64 `json:"conversations"`
	Differences   int64 `json:"differences"`
}

// Run compares the tables with the log, prints each difference, and fails where
// there is one.
func (c *verifyCmd) Run(ctx context.Context, streams Streams) error {
	pool, log, err := openDatabase(ctx, c.Database)
	if err != nil {
		return err
	}
	defer pool.Close()
	if c.Partition != nil && (*c.Partition < 0 || *c.Partition >= log.Partitions()) {
		return fmt.Errorf("--partition must be from 0 to %d", log.Partitions()-1)
	}
	v := projector.NewVerifier(pool, log)
	targets, err := c.targets(ctx, v, log)
	if err != nil {
		return err
	}
	var watched io.Writer
	if !c.Quiet {
		watched = streams.Err
	}
	meter := progress.New(watched, "verify", nil)
	defer meter.Close()
	sum := verified{Partitions: len(targets)}
	const whole = 1000 // of one partition
	meter.Begin("compare", whole*int64(len(targets)), len(c.User) == 0 && c.Sample == 0)
	for i, t := range targets {
		var planned, done int64
		behind := whole * int64(i)
		r, err := v.Verify(ctx, t.partition, projector.VerifyOptions{
			Users: t.users,
			Found: func(d projector.Difference) {
				meter.Lines()
				c.print(streams.Out, d)
			},
			Planned: func(n int64) { planned += n },
			Done: func(n int) {
				done += int64(n)
				meter.Advance(behind+whole*done/max(planned, done, 1), n)
			},
		})
		if err != nil {
			return err
		}
		meter.Advance(behind+whole, 0)
		sum.Users += r.Users
		sum.Conversations += r.Conversations
		sum.Differences += r.Differences
	}
	meter.Close()
	return c.finish(streams.Out, sum)
}

// print prints one difference.
func (c *verifyCmd) print(w io.Writer, d projector.Difference) {
	if c.JSON {
		_ = json.NewEncoder(w).Encode(d) // the summary says what cannot be written
		return
	}
	fmt.Fprintln(w, d)
}

// finish prints the summary and fails where there were differences.
func (c *verifyCmd) finish(w io.Writer, sum verified) error {
	var err error
	if c.JSON {
		err = json.NewEncoder(w).Encode(sum)
	} else {
		_, err = fmt.Fprintf(w, "%s and %s of %s compared with the log: %s\n",
			counted(sum.Users, "user"), counted(sum.Conversations, "conversation"),
			counted(int64(sum.Partitions), "partition"), differences(sum.Differences))
	}
	if err == nil && sum.Differences > 0 {
		err = fmt.Errorf("the tables are not what the log says: %s", differences(sum.Differences))
	}
	return err
}

func differences(n int64) string {
	if n == 0 {
		return "no difference"
	}
	return counted(n, "difference")
}

// counted returns so many of a thing, such as "1,000 users".
func counted(n int64, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return progress.Count(n) + " " + thing
}

// target is what is verified of one partition.
type target struct {
	partition int
	users     []string // nil for all
}

// targets returns what is verified, in ascending order of partitions.
func (c *verifyCmd) targets(ctx context.Context, v *projector.Verifier, log *events.Log) ([]target, error) {
	partitions := make([]int, 0, log.Partitions())
	for p := range log.Partitions() {
		if c.Partition == nil || *c.Partition == p {
			partitions = append(partitions, p)
		}
	}
	users := map[int][]string{}
	for _, u := range c.User {
		p := log.PartitionOf(u)
		if !slices.Contains(users[p], u) {
			users[p] = append(users[p], u)
		}
	}
	for i, n := range shares(c.Sample, len(partitions)) {
		var err error
		if users[partitions[i]], err = v.Sample(ctx, partitions[i], n); err != nil {
			return nil, err
		}
	}
	targets := make([]target, 0, len(partitions))
	for _, p := range partitions {
		if all := len(c.User) == 0 && c.Sample == 0; all || len(users[p]) > 0 {
			targets = append(targets, target{p, users[p]})
		}
	}
	return targets, nil
}

// shares deals n out to so many, as evenly as can be, and by chance which get
// one more. It returns those that get any.
func shares(n, among int) map[int]int {
	got := map[int]int{}
	for i, winner := range rand.Perm(among) { //nolint:gosec // a sample, which nobody gains from guessing
		share := n / among
		if i < n%among {
			share++
		}
		if share > 0 {
			got[winner] = share
		}
	}
	return got
}
