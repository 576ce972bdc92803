package partition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/cli/connect"
	"github.com/badged/badged/internal/cli/terminal"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/internal/operations"
	"github.com/badged/badged/internal/partition/copier"
	"github.com/badged/badged/internal/partition/splitting"
	"github.com/badged/badged/internal/pg/pgsession"
	"github.com/badged/badged/internal/server/config"
)

type splitCmd struct {
	config.Database `embed:""`
	pause           `embed:""`
	Partitions      []int `arg:"" optional:"" name:"partition" help:"Numbers of the partitions. Without numbers, the command splits all partitions that were split least often, one after the other."`
	Undo            bool  `help:"Cancel a split that was interrupted before the switch." env:"-"`
	JSON            bool  `name:"json" help:"Print JSON, a list of the partitions that were split." env:"-"`
	Quiet           bool  `short:"q" help:"Show no progress." env:"-"`
}

// Validate implements kong's validation.
func (c *splitCmd) Validate() error {
	if c.Undo && len(c.Partitions) != 1 {
		return errors.Join(c.Database.Validate(), errors.New("--undo needs the number of one partition"))
	}
	for i, p := range c.Partitions {
		if slices.Contains(c.Partitions[:i], p) {
			return errors.Join(c.Database.Validate(), fmt.Errorf("partition %d is named twice", p))
		}
	}
	return errors.Join(c.Database.Validate(), c.check())
}

// AfterInterruption returns what the operator should do after an interruption.
func (c *splitCmd) AfterInterruption() string {
	return "Nothing is lost: run it again. `badged partition list` shows what is being split, and --undo undoes a split that has not switched yet."
}

// splitArguments has the arguments that the audit trail records for a split.
type splitArguments struct {
	Partition int  `json:"partition"`
	Undo      bool `json:"undo,omitempty"`
}

// Run splits the partitions. For each partition it prints how long publishing and folding paused.
func (c *splitCmd) Run(ctx context.Context, streams terminal.Streams) error {
	dbs, err := connect.Databases(ctx, c.Database, streams.Err)
	if err != nil {
		return err
	}
	defer dbs.Close()
	holders, parents := map[int]*cluster.Database{}, map[int]*cluster.Database{}
	for _, s := range dbs.Databases() {
		if err := s.Err(); err != nil {
			return fmt.Errorf("splitting needs all databases: %w", err)
		}
		held, err := eventlog.Held(ctx, s.Pool)
		if err != nil {
			return err
		}
		for _, p := range held {
			holders[p] = s
		}
		begun, err := splitting.Begun(ctx, s.Pool)
		if err != nil {
			return fmt.Errorf("shard %s: %w", s.Name, err)
		}
		for _, p := range begun { // the split of p must be finished in s, where it began, even if the new partitions have moved
			parents[p] = s
		}
	}
	chosen := c.Partitions
	if len(chosen) == 0 {
		chosen = lowest(holders, dbs.Partitions())
	}
	done := []splitting.Result{}
	for _, p := range chosen {
		s := holders[p]
		if s == nil {
			s = parents[p]
		}
		if s == nil {
			s = holderOf(dbs, holders, p)
		}
		if s == nil {
			err = cmp.Or(dbs.CheckPartition(p), fmt.Errorf("no database has partition %d at this moment: it is moving", p))
			break
		}
		if err = c.split(ctx, streams, s, p, func(r splitting.Result) {
			done = append(done, r)
			for _, child := range r.Into { // a later argument may be one of the new partitions
				holders[child] = s
			}
		}); err != nil {
			break
		}
	}
	if c.JSON {
		return errors.Join(err, terminal.PrintJSON(streams.Out, done))
	}
	return err
}

// lowest returns the partitions to split if the command names none: the partitions that were split
// least often, in ascending order. A split makes two partitions of the next level, so the
// result has all partitions of the lowest level that still has partitions. n is the number of
// partitions of the first level.
func lowest(holders map[int]*cluster.Database, n int) (least []int) {
	for base, modulus := 0, n; modulus <= events.MaxPartitions; base, modulus = base+modulus, 2*modulus {
		for p := range holders {
			if p >= base && p < base+modulus {
				least = append(least, p)
			}
		}
		if len(least) > 0 {
			slices.Sort(least)
			return least
		}
	}
	return nil
}

// holderOf is called for a partition p that no database has. It returns a database that has one of
// the two partitions into which p was split, or nil if there is no such database.
func holderOf(dbs *cluster.Cluster, holders map[int]*cluster.Database, p int) *cluster.Database {
	if a, b, ok := eventlog.Children(p, dbs.Partitions()); ok {
		for _, child := range []int{a, b} {
			if s := holders[child]; s != nil {
				return s
			}
		}
	}
	return nil
}

// split splits a partition in the database s. With --undo it undoes an interrupted split.
func (c *splitCmd) split(ctx context.Context, streams terminal.Streams, s *cluster.Database, p int, done func(splitting.Result)) error {
	watch := watchedMove{out: streams.Err, command: "split", quiet: c.Quiet}
	defer connect.Watch(ctx, s, watch.note)()
	cfg := splitting.Config{
		Pool: s.Pool, Log: s.Log, Partition: p,
		Options: copier.Options{
			Patience: c.MaxPause, MaxWait: c.MaxWait,
			Progress: func(step copier.Step, rows int64) { watch.progress(string(step), rows) },
		},
		Blocked: func(holder pgsession.Holder) { watch.blocked(s.Name, holder) },
	}
	return operations.Audited(ctx, s.Pool, operations.OSUser(), "partition.split", splitArguments{p, c.Undo}, func(ctx context.Context) (any, error) {
		if c.Undo {
			if err := splitting.Undo(ctx, cfg); err != nil {
				return nil, err
			}
			_, err := fmt.Fprintf(streams.Out, "partition %d is unchanged; the copied rows were deleted\n", p)
			return nil, err
		}
		r, err := splitting.Split(ctx, cfg)
		if errors.Is(err, splitting.ErrWasSplit) { // for example after a split that was interrupted just before its end
			out := streams.Out
			if c.JSON {
				out = streams.Err
			}
			a, b, _ := eventlog.Children(p, s.Log.Partitions())
			_, err := fmt.Fprintf(out, "partition %d is split into %d and %d already: nothing was done\n", p, a, b)
			return nil, err
		}
		if err != nil {
			return r, err
		}
		if done(r); c.JSON {
			return r, nil
		}
		return r, printSplit(streams.Out, r)
	})
}

func printSplit(w io.Writer, r splitting.Result) error {
	if r.Attempts == 0 {
		_, err := fmt.Fprintf(w, "partition %d is split into %d and %d: the rows that an earlier split left are deleted\n", r.Partition, r.Into[0], r.Into[1])
		return err
	}
	_, err := fmt.Fprintf(w, "partition %d split into %d and %d in %s: %s of the log and %s of other tables; %s\n",
		r.Partition, r.Into[0], r.Into[1], r.Took.Round(time.Millisecond), terminal.Counted(r.LogRows, "row"), terminal.Counted(r.Rows, "row"), pauses(r.Paused, r.FoldingPaused))
	return err
}
