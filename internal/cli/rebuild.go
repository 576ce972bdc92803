package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/config"
	"github.com/badged/badged/internal/progress"
	"github.com/badged/badged/projector"
	"github.com/badged/badged/pubsub"
)

// rebuildCmd is `badged rebuild`.
type rebuildCmd struct {
	config.Database `embed:""`
	Partition       *int    `help:"Only this partition." placeholder:"N" env:"-"`
	User            string  `help:"Only this user, whose rows are made right in place." placeholder:"USER" env:"-"`
	Anew            bool    `help:"Begin with the first partition, even where an earlier rebuild was interrupted." env:"-"`
	MaxLoad         float64 `help:"The part of the time, from 0.01 to 1, that it works rather than pauses." default:"1" env:"-"`
	RedisURL        string  `name:"redis-url" help:"Redis of the servers, over which clients of users who were wrong hear of it at once." placeholder:"URL"`
	JSON            bool    `name:"json" help:"Print JSON: a line for each partition, and one with the summary." env:"-"`
	Quiet           bool    `short:"q" help:"Show no progress." env:"-"`
}

// Validate implements kong's validation.
func (c *rebuildCmd) Validate() error {
	errs := []error{c.Database.Validate()}
	if c.User != "" {
		if c.Partition != nil || c.Anew {
			errs = append(errs, errors.New("--user goes with neither --partition nor --anew"))
		}
		if reason := events.CheckID(c.User); reason != "" {
			errs = append(errs, fmt.Errorf("--user %s", reason))
		}
	}
	if c.Partition != nil && c.Anew {
		errs = append(errs, errors.New("--anew is about a rebuild of all partitions"))
	}
	if !(c.MaxLoad >= 0.01 && c.MaxLoad <= 1) {
		errs = append(errs, errors.New("--max-load must be from 0.01 to 1"))
	}
	return errors.Join(errs...)
}

// rebuilt sums up a rebuild, as `badged rebuild --json` prints it last.
type rebuilt struct {
	Partitions     int   `json:"partitions"`
	Users          int64 `json:"users"`
	Conversations  int64 `json:"conversations"`
	DifferentUsers int64 `json:"different_users"`
	// NewEpochs is how many partitions have got new tables, and a new epoch.
	NewEpochs int `json:"new_epochs"`
}

func (r *rebuilt) add(p projector.RebuiltPartition) {
	r.Partitions++
	r.Users += p.Users
	r.Conversations += p.Conversations
	r.DifferentUsers += p.DifferentUsers
	if p.DifferentUsers > 0 {
		r.NewEpochs++
	}
}

// Run makes the tables what the log says, and prints what they were instead. A
// difference is no failure: it is repaired.
func (c *rebuildCmd) Run(ctx context.Context, streams Streams) (err error) {
	pool, log, err := openDatabase(ctx, c.Database)
	if err != nil {
		return err
	}
	defer pool.Close()
	if c.Partition != nil && (*c.Partition < 0 || *c.Partition >= log.Partitions()) {
		return fmt.Errorf("--partition must be from 0 to %d", log.Partitions()-1)
	}
	var bus pubsub.Bus // stays nil without Redis
	if c.RedisURL != "" {
		redis, err := pubsub.NewRedis(pubsub.RedisConfig{URL: c.RedisURL})
		if err != nil {
			return fmt.Errorf("--redis-url: %w", err)
		}
		defer func() { err = errors.Join(err, redis.Close()) }()
		bus = redis
	}
	if c.User != "" {
		return c.mend(ctx, streams.Out, projector.NewVerifier(pool, log), log.PartitionOf(c.User), bus)
	}
	var watched io.Writer
	if !c.Quiet {
		watched = streams.Err
	}
	meter := progress.New(watched, "rebuild", nil)
	defer meter.Close()
	return c.rebuild(ctx, streams.Out, meter, projector.RebuildConfig{Pool: pool, Log: log, Bus: bus})
}

// rebuild rebuilds one or all partitions.
func (c *rebuildCmd) rebuild(ctx context.Context, out io.Writer, meter *progress.Meter, cfg projector.RebuildConfig) error {
	const whole = 1000 // of one partition
	var sum rebuilt
	var written error
	var planned, done int64
	partitions := int64(1)
	if c.Partition == nil {
		partitions = int64(cfg.Log.Partitions())
	}
	meter.Begin("rebuild", whole*partitions, true)
	cfg.Partition, cfg.Anew, cfg.MaxLoad = c.Partition, c.Anew, c.MaxLoad
	cfg.Resumed = func(before []projector.RebuiltPartition) {
		for _, p := range before {
			sum.add(p)
		}
		meter.Note(fmt.Sprintf("going on with a rebuild that was interrupted, of which %s of %d are done; --anew begins with the first",
			counted(int64(len(before)), "partition"), partitions))
	}
	cfg.Planned = func(_ int, work int64) { planned += work }
	cfg.Done = func(work, events int) {
		done += int64(work)
		meter.Advance(whole*int64(sum.Partitions)+whole*done/max(planned, done, 1), events)
	}
	cfg.Blocked = func(partition, pid int, application string) {
		meter.Note(fmt.Sprintf("partition %d is rebuilt and waits for %q (Postgres process %d), which reads its tables and does not end", partition, application, pid))
	}
	cfg.Rebuilt = func(p projector.RebuiltPartition) {
		sum.add(p)
		planned, done = 0, 0
		meter.Advance(whole*int64(sum.Partitions), 0)
		if c.JSON || p.DifferentUsers > 0 {
			meter.Lines()
			written = errors.Join(written, c.print(out, p))
		}
	}
	err := projector.Rebuild(ctx, cfg)
	meter.Close()
	if err = errors.Join(err, written); err != nil {
		return err
	}
	return c.finish(out, sum)
}

// print prints what became of a partition.
func (c *rebuildCmd) print(w io.Writer, p projector.RebuiltPartition) error {
	if c.JSON {
		return json.NewEncoder(w).Encode(p)
	}
	_, err := fmt.Fprintf(w, "partition %d: %s of %s differed from the log; it has new tables and a new epoch\n",
		p.Partition, progress.Count(p.DifferentUsers), counted(p.Users, "user"))
	for _, d := range p.First {
		_, lineErr := fmt.Fprintf(w, "  %s\n", d)
		err = errors.Join(err, lineErr)
	}
	return err
}

// finish prints the summary.
func (c *rebuildCmd) finish(w io.Writer, sum rebuilt) error {
	if c.JSON {
		return json.NewEncoder(w).Encode(sum)
	}
	result := "no difference, nothing was changed"
	if sum.DifferentUsers > 0 {
		result = fmt.Sprintf("%s repaired, %s with a new epoch", counted(sum.DifferentUsers, "user"), counted(int64(sum.NewEpochs), "partition"))
	}
	_, err := fmt.Fprintf(w, "%s and %s of %s rebuilt from the log: %s\n",
		counted(sum.Users, "user"), counted(sum.Conversations, "conversation"), counted(int64(sum.Partitions), "partition"), result)
	return err
}

// mendedUser is what `badged rebuild --user --json` prints.
type mendedUser struct {
	UserID      string                 `json:"user_id"`
	Mended      bool                   `json:"mended"`
	Version     int64                  `json:"version,omitempty"`
	Differences []projector.Difference `json:"differences"`
}

// mend makes the rows of the user what the log says.
func (c *rebuildCmd) mend(ctx context.Context, out io.Writer, v *projector.Verifier, partition int, bus pubsub.Bus) error {
	did := mendedUser{UserID: c.User, Differences: []projector.Difference{}}
	_, err := v.Verify(ctx, partition, projector.VerifyOptions{
		Users: []string{c.User},
		Found: func(d projector.Difference) { did.Differences = append(did.Differences, d) },
	})
	if err != nil {
		return err
	}
	update, mended, err := v.Mend(ctx, c.User)
	if err != nil {
		return err
	}
	did.Mended, did.Version = mended, update.Version
	if mended && bus != nil {
		if err := bus.Publish(ctx, []pubsub.Update{update}); err != nil {
			return fmt.Errorf("user %q is mended, but clients only hear of it when they are reconciled: %w", c.User, err)
		}
	}
	if c.JSON {
		return json.NewEncoder(out).Encode(did)
	}
	for _, d := range did.Differences {
		_, lineErr := fmt.Fprintln(out, d)
		err = errors.Join(err, lineErr)
	}
	result := "is what the log says, nothing was changed"
	if mended {
		result = fmt.Sprintf("was made what the log says, in version %d", update.Version)
	}
	_, lineErr := fmt.Fprintf(out, "user %q %s\n", c.User, result)
	return errors.Join(err, lineErr)
}
