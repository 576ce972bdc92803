// Package partition has the commands that list, move and split partitions.
//
// It does not know how a partition is moved or split; packages moving and splitting do.
package partition

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/badged/badged/internal/base/progress"
	"github.com/badged/badged/internal/cli/connect"
	"github.com/badged/badged/internal/cli/terminal"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/operations"
	"github.com/badged/badged/internal/partition/copier"
	"github.com/badged/badged/internal/partition/moving"
	"github.com/badged/badged/internal/pg/pgsession"
	"github.com/badged/badged/internal/server/config"
)

// Cmd is `badged partition`.
type Cmd struct {
	List listCmd `cmd:"" help:"Print the shard and size of each partition, and whether it is being moved or split."`
	Plan planCmd `cmd:"" help:"Propose moves of partitions that balance the shards."`
	Move moveCmd `cmd:"" help:"Move a partition to another shard, while both shards serve."`

	Split splitCmd `cmd:"" help:"Split each partition into two, while they serve."`
}

// movingShards returns the databases of a cluster as package moving needs them, and their names.
func movingShards(dbs *cluster.Cluster) (all []moving.Database, names []string) {
	for _, s := range dbs.Databases() {
		all = append(all, moving.Database{Name: s.Name, Pool: s.Pool, Log: s.Log})
		names = append(names, s.Name)
	}
	return all, names
}

// listPartitions lists the partitions of all databases. If databases are unavailable, it lists their
// partitions with the state "away" or "unknown", and also returns an error.
func listPartitions(ctx context.Context, dbs *cluster.Cluster) ([]moving.Partition, error) {
	var present []moving.Database
	var away []error
	for _, s := range dbs.Databases() {
		if err := s.Err(); err != nil {
			away = append(away, err)
			continue
		}
		present = append(present, moving.Database{Name: s.Name, Pool: s.Pool, Log: s.Log})
	}
	places := dbs.Map()
	list, err := moving.List(ctx, present, dbs.Layout().Living(), func(p int) string { return places[p].Database }, connect.Patience)
	return list, errors.Join(append(away, err)...)
}

type listCmd struct {
	config.Database `embed:""`
	JSON            bool `name:"json" help:"Print JSON." env:"-"`
}

// Run prints the partitions.
func (c *listCmd) Run(ctx context.Context, streams terminal.Streams) error {
	dbs, err := connect.Databases(ctx, c.Database, streams.Err)
	if err != nil {
		return err
	}
	defer dbs.Close()
	list, err := listPartitions(ctx, dbs)
	if c.JSON {
		return errors.Join(err, terminal.PrintJSON(streams.Out, list))
	}
	table := tabwriter.NewWriter(streams.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "PARTITION\t"+connect.Before("SHARD", dbs.Databases()[0].Name)+"SIZE\tEVENTS\tSTATE")
	for _, p := range list {
		bytes, events, state := terminal.Size(float64(p.Bytes)), progress.Count(p.Events), string(p.State)
		switch p.State {
		case moving.Unknown:
			bytes, events = "?", "?"
		case moving.Away:
			bytes, events = "?", "?"
			if s := dbs.Database(p.Shard); s != nil && s.Err() == nil {
				state = fmt.Sprintf("lost: %s was restored to a time before it got the partition; restore it to a later time", p.Shard)
			}
		case moving.Moving:
			state = fmt.Sprintf("moving to %s, which has %s of the log", p.To, terminal.Counted(p.CopiedRows, "row"))
		case moving.Switched:
			state = fmt.Sprintf("not served: finish with `badged partition move %d --to %s`", p.Partition, p.To)
		case moving.Splitting:
			state = fmt.Sprintf("serving, being split; after an interruption `badged partition split %d` starts over", p.Partition)
		case moving.OldRows:
			bytes, events = "", ""
			state = fmt.Sprintf("was split; `badged partition move %d --to %s` deletes old rows here", p.Partition, p.To)
			if p.To == "" {
				state = fmt.Sprintf("was split; `badged partition split %d` deletes old rows here", p.Partition)
			}
		case moving.LeftOver:
			state = fmt.Sprintf("serving; `badged partition move %d --to %s` deletes old rows elsewhere", p.Partition, p.To)
		}
		fmt.Fprintf(table, "%d\t%s%s\t%s\t%s\n", p.Partition, connect.Before(p.Shard, p.Shard), bytes, events, state)
	}
	return errors.Join(table.Flush(), err)
}

type planCmd struct {
	config.Database `embed:""`
	By              string `help:"What to balance: space on disk, or events folded so far." enum:"disk,events" default:"disk" env:"-"`
	JSON            bool   `name:"json" help:"Print JSON." env:"-"`
}

// Run prints the proposed moves.
func (c *planCmd) Run(ctx context.Context, streams terminal.Streams) error {
	dbs, err := connect.Cluster(ctx, c.Database, streams.Err)
	if err != nil {
		return err
	}
	defer dbs.Close()
	list, err := listPartitions(ctx, dbs)
	if err != nil {
		return fmt.Errorf("a plan needs all shards: %w", err)
	}
	weight := moving.ByBytes
	if c.By == "events" {
		weight = moving.ByEvents
	}
	_, names := movingShards(dbs)
	plan := moving.Plan(list, names, weight)
	if c.JSON {
		return terminal.PrintJSON(streams.Out, plan)
	}
	if len(plan) == 0 {
		_, err := fmt.Fprintln(streams.Out, "no move would even out the shards")
		return err
	}
	for _, p := range plan {
		fmt.Fprintf(streams.Out, "badged partition move %d --to %s  # from %s: %s, %s\n", p.Partition, p.To, p.From, terminal.Size(float64(p.Bytes)), terminal.Counted(p.Events, "event"))
	}
	return nil
}

// pause has the flag --max-pause of the commands that move and split a partition. In its last step,
// the switch, such a command blocks publishing to the partition and folding. The flag limits how
// long one attempt to switch may block them.
type pause struct {
	MaxPause     time.Duration `help:"How long an attempt to switch may block publishing to the partition and folding, from 100ms to 3s." default:"800ms" env:"-"`
	connect.Wait `embed:""`
}

// check fails if --max-pause is out of range. A session that hangs for five seconds is terminated,
// so an attempt with a longer pause could lose its session.
func (p pause) check() error {
	if p.MaxPause < 100*time.Millisecond || p.MaxPause > 3*time.Second {
		return fmt.Errorf("--max-pause must be from 100ms to 3s, is %s", p.MaxPause)
	}
	return p.Check()
}

type moveCmd struct {
	config.Database `embed:""`
	pause           `embed:""`
	Partition       int    `arg:"" help:"Number of the partition."`
	To              string `help:"Name of the shard to which the partition moves." placeholder:"NAME" env:"-"`
	Undo            bool   `help:"Cancel a move that was interrupted before the switch." env:"-"`
	JSON            bool   `name:"json" help:"Print JSON." env:"-"`
	Quiet           bool   `short:"q" help:"Show no progress." env:"-"`
}

// Validate implements kong's validation.
func (c *moveCmd) Validate() error {
	if (c.To == "") != c.Undo {
		return errors.Join(c.Database.Validate(), errors.New("give either --to or --undo"))
	}
	return errors.Join(c.Database.Validate(), c.check())
}

// AfterInterruption returns what the operator should do after an interruption.
func (c *moveCmd) AfterInterruption() string {
	again := "badged partition move " + strconv.Itoa(c.Partition)
	if c.Undo {
		return fmt.Sprintf("Run it again: `%s --undo`.", again)
	}
	return fmt.Sprintf("Nothing is lost: finish the move with `%s --to %s`, or undo it with `%[1]s --undo`, which is refused after the switch.", again, c.To)
}

// moveArguments has the arguments that the audit trail records for a move.
type moveArguments struct {
	Partition int    `json:"partition"`
	To        string `json:"to,omitempty"`
	Undo      bool   `json:"undo,omitempty"`
}

// Run moves the partition, and prints for how long publishing and folding paused.
func (c *moveCmd) Run(ctx context.Context, streams terminal.Streams) error {
	dbs, err := connect.Cluster(ctx, c.Database, streams.Err)
	if err != nil {
		return err
	}
	defer dbs.Close()
	all, _ := movingShards(dbs)
	cfg := moving.Config{Databases: all, Partition: c.Partition, To: c.To, Options: copier.Options{Patience: c.MaxPause, MaxWait: c.MaxWait}}
	source := dbs.Database(c.To)
	if err := dbs.CheckPartition(c.Partition); err != nil {
		if c.Undo || source == nil || dbs.Layout().Split(c.Partition) == "" {
			return err
		}
		// The partition was split. Continue: if the partition was moved to --to earlier,
		// moving.Move deletes the rows that the earlier move has left on another database.
	} else if source, err = dbs.Holder(c.Partition); err != nil && !errors.Is(err, cluster.ErrLost) { // ErrLost is expected if an earlier move was interrupted between the commits of the switch in the two databases
		return err
	}
	if target := dbs.Database(c.To); target != nil { // if there is no such shard, moving.Move fails, and its error lists the shards
		if err := target.Err(); err != nil {
			return err
		}
	}
	watch := watchedMove{out: streams.Err, command: "move", quiet: c.Quiet}
	for _, s := range dbs.Databases() {
		if s == source || s.Name == c.To {
			defer connect.Watch(ctx, s, watch.note)()
		}
	}
	cfg.Progress = func(step copier.Step, rows int64) { watch.progress(string(step), rows) }
	cfg.Blocked = watch.blocked
	return operations.Audited(ctx, source.Pool, operations.OSUser(), "partition.move", moveArguments{c.Partition, c.To, c.Undo}, func(ctx context.Context) (any, error) {
		if c.Undo {
			from, to, err := moving.Undo(ctx, cfg)
			if err != nil {
				return nil, err
			}
			_, err = fmt.Fprintf(streams.Out, "partition %d stays on %s; the rows copied to %s were deleted\n", c.Partition, from, to)
			return nil, err
		}
		r, err := moving.Move(ctx, cfg)
		if errors.Is(err, moving.ErrSameShard) { // for example after a move that was interrupted just before its end
			r, err = moving.Result{Partition: c.Partition, From: c.To, To: c.To}, nil
		}
		if err != nil {
			return r, err
		}
		if c.JSON {
			return r, terminal.PrintJSON(streams.Out, r)
		}
		return r, printMove(streams.Out, r)
	})
}

func printMove(w io.Writer, r moving.Result) error {
	if r.From == r.To {
		_, err := fmt.Fprintf(w, "partition %d is on %s already: nothing was moved\n", r.Partition, r.To)
		return err
	}
	if r.Paused == 0 {
		if r.Split {
			_, err := fmt.Fprintf(w, "partition %d was split: the rows that an earlier move left on %s are deleted\n", r.Partition, r.From)
			return err
		}
		_, err := fmt.Fprintf(w, "partition %d is on %s: an earlier move was finished\n", r.Partition, r.To)
		return err
	}
	_, err := fmt.Fprintf(w, "partition %d moved from %s to %s in %s: %s of the log and %s of other tables; %s\n",
		r.Partition, r.From, r.To, r.Took.Round(time.Millisecond), terminal.Counted(r.LogRows, "row"), terminal.Counted(r.Rows, "row"), pauses(r.Paused, r.FoldingPaused))
	return err
}

// pauses says for how long a move or split paused publishing and folding. folding is 0 if no
// server folds the partition.
func pauses(publishing, folding time.Duration) string {
	text := fmt.Sprintf("publishing to it paused for %s", publishing.Round(time.Millisecond))
	if folding == 0 {
		return text + ", and no server folds it yet"
	}
	return fmt.Sprintf("%s and folding it for %s", text, folding.Round(time.Millisecond))
}

// watchedMove prints the progress of a move or split, unless quiet is true.
type watchedMove struct {
	out        io.Writer
	command    string
	quiet      bool
	step       string
	reportedAt time.Time
}

// stepInterval is the minimum time between two lines about the progress of the same step.
const stepInterval = 5 * time.Second

func (w *watchedMove) progress(step string, rows int64) {
	if w.quiet || step == w.step && time.Since(w.reportedAt) < stepInterval {
		return
	}
	w.step, w.reportedAt = step, time.Now()
	w.note(fmt.Sprintf("%s (%s)", step, terminal.Counted(rows, "row")))
}

func (w *watchedMove) note(text string) {
	fmt.Fprintf(w.out, "badged partition %s: %s\n", w.command, text)
}

func (w *watchedMove) blocked(shard string, holder pgsession.Holder) {
	where := ""
	if shard != "" {
		where = " on shard " + shard
	}
	w.note(fmt.Sprintf("waiting for %s%s, %s, which uses the partition; %s", holder, where, holder.Open(), holder.Remedy()))
}
