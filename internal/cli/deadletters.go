package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/admin"
	"github.com/badged/badged/internal/appending"
	"github.com/badged/badged/internal/cli/connect"
	"github.com/badged/badged/internal/cli/terminal"
	"github.com/badged/badged/internal/config"
	"github.com/badged/badged/internal/operators"
	"github.com/badged/badged/internal/shards"
	"github.com/badged/badged/projector/deadletters"
)

// deadLettersCmd is `badged deadletters`.
type deadLettersCmd struct {
	List    deadLettersListCmd    `cmd:"" help:"Show the events in the log that could not be folded, and the messages of brokers that are no events."`
	Retry   deadLettersRetryCmd   `cmd:"" help:"Publish dead letters again, through the log."`
	Discard deadLettersDiscardCmd `cmd:"" help:"Delete dead letters; each is printed."`
}

// deadLetterPage is how many dead letters are read at once.
const deadLetterPage = 500

type deadLettersListCmd struct {
	config.Database `embed:""`
	JSON            bool `name:"json" help:"Print JSON, a line for each, with its payload." env:"-"`
}

// Run prints every dead letter.
func (c *deadLettersListCmd) Run(ctx context.Context, streams Streams) error {
	cluster, err := connect.Shards(ctx, c.Database, streams.Err)
	if err != nil {
		return err
	}
	defer cluster.Close()
	table := tabwriter.NewWriter(streams.Out, 0, 0, 2, ' ', 0)
	lines := json.NewEncoder(streams.Out)
	shard, column := "", ""
	if cluster.Sharded() {
		column = "SHARD\t"
	}
	n := 0
	err = operators.Each(ctx, cluster, func(s *shards.Shard) error {
		if cluster.Sharded() {
			shard = s.Name + "\t"
		}
		return eachDeadLetter(ctx, s, func(l deadletters.Letter) error {
			n++
			if c.JSON {
				shown := admin.NewDeadLetter(l)
				shown.Shard = s.Name
				return lines.Encode(shown)
			}
			if n == 1 {
				fmt.Fprintln(table, column+"ID\tWHERE\tPUT ASIDE\tREASON")
			}
			fmt.Fprintf(table, "%s%d\t%s\t%s\t%s\n", shard, l.ID, whereOf(l), l.At.UTC().Format(time.RFC3339), l.Reason)
			return nil
		})
	})
	if n == 0 && !c.JSON && err == nil {
		fmt.Fprintln(streams.Out, "there are no dead letters")
	}
	return errors.Join(err, table.Flush())
}

// whereOf returns the place of a dead letter.
func whereOf(l deadletters.Letter) string {
	if l.Origin != "" {
		return l.Origin
	}
	return fmt.Sprintf("partition %d, %s", l.Partition, l.Place)
}

// selection selects dead letters.
type selection struct {
	ID  []int64 `arg:"" optional:"" help:"Ids, as list shows them."`
	All bool    `help:"All of them." env:"-"`
}

// Validate implements kong's validation.
func (s selection) Validate() error {
	if s.All == (len(s.ID) > 0) {
		return errors.New("give the ids of dead letters, or --all")
	}
	return nil
}

// each calls do for each selected dead letter and joins the errors.
func (s selection) each(ctx context.Context, cluster *shards.Cluster, do func(s *shards.Shard, id int64) error) error {
	if s.All {
		return operators.Each(ctx, cluster, func(s *shards.Shard) error {
			var ids []int64 // only those present now: a retried event may fail again
			errs := []error{eachDeadLetter(ctx, s, func(l deadletters.Letter) error {
				ids = append(ids, l.ID)
				return nil
			})}
			for _, id := range ids {
				errs = append(errs, do(s, id))
			}
			return errors.Join(errs...)
		})
	}
	var errs []error
	for _, id := range s.ID {
		shard, err := operators.LetterHolder(ctx, cluster, id)
		if err == nil {
			err = do(shard, id)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

type deadLettersRetryCmd struct {
	config.Database `embed:""`
	selection       `embed:""`
}

// Validate implements kong's validation.
func (c *deadLettersRetryCmd) Validate() error {
	return errors.Join(c.Database.Validate(), c.selection.Validate())
}

// Run retries the selected dead letters. It continues after an error, and
// fails if one still cannot be folded.
func (c *deadLettersRetryCmd) Run(ctx context.Context, streams Streams) error {
	cluster, err := connect.Shards(ctx, c.Database, streams.Err)
	if err != nil {
		return err
	}
	defer cluster.Close()
	publish := shards.NewAppender(cluster, func(s *shards.Shard) events.Append { return appending.To(s.Log) }).Append
	return c.each(ctx, cluster, func(s *shards.Shard, id int64) error {
		if _, err := operators.RetryDeadLetter(ctx, s, publish, admin.OSUser(), id); err != nil {
			return err
		}
		_, err := fmt.Fprintf(streams.Out, "dead letter %d is in the log again\n", id)
		return err
	})
}

type deadLettersDiscardCmd struct {
	config.Database       `embed:""`
	selection             `embed:""`
	terminal.Confirmation `embed:""`
}

// Validate implements kong's validation.
func (c *deadLettersDiscardCmd) Validate() error {
	return errors.Join(c.Database.Validate(), c.selection.Validate())
}

// Run deletes the selected dead letters and prints each as JSON, so that a
// mistake loses nothing.
func (c *deadLettersDiscardCmd) Run(ctx context.Context, streams Streams) error {
	if c.selection.All {
		if err := c.Ask(streams, "Discard all dead letters?"); err != nil {
			return err
		}
	}
	cluster, err := connect.Shards(ctx, c.Database, streams.Err)
	if err != nil {
		return err
	}
	defer cluster.Close()
	lines := json.NewEncoder(streams.Out)
	return c.each(ctx, cluster, func(s *shards.Shard, id int64) error {
		l, err := admin.DiscardDeadLetter(ctx, s.Pool, deadletters.New(s.Pool, s.Log), admin.OSUser(), id)
		if err != nil {
			return err
		}
		l.Shard = s.Name
		return lines.Encode(l)
	})
}

func eachDeadLetter(ctx context.Context, s *shards.Shard, do func(deadletters.Letter) error) error {
	letters := deadletters.New(s.Pool, s.Log)
	after := int64(0)
	for {
		page, err := letters.List(ctx, after, deadLetterPage)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			return nil
		}
		for _, l := range page {
			if err := do(l); err != nil {
				return err
			}
			after = l.ID
		}
	}
}
