package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/cli/connect"
	"github.com/badged/badged/internal/cli/terminal"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/operations"
	"github.com/badged/badged/internal/server/config"
)

// deadLettersCmd is `badged deadletters`.
type deadLettersCmd struct {
	List    deadLettersListCmd    `cmd:"" help:"Show dead letters: events in the log that could not be folded, and messages of brokers that are not events."`
	Retry   deadLettersRetryCmd   `cmd:"" help:"Append dead letters to the log again, to fold them."`
	Discard deadLettersDiscardCmd `cmd:"" help:"Delete dead letters, and print each of them."`
}

// deadLetterPage is the maximum number of dead letters that are read at once.
const deadLetterPage = 500

type deadLettersListCmd struct {
	config.Database `embed:""`
	JSON            bool `name:"json" help:"Print JSON: one line for each dead letter, with its payload." env:"-"`
}

// Run prints every dead letter.
func (c *deadLettersListCmd) Run(ctx context.Context, streams Streams) error {
	dbs, err := connect.Databases(ctx, c.Database, streams.Err)
	if err != nil {
		return err
	}
	defer dbs.Close()
	table := tabwriter.NewWriter(streams.Out, 0, 0, 2, ' ', 0)
	lines := json.NewEncoder(streams.Out)
	n := 0
	err = eachDeadLetter(ctx, dbs, func(l operations.DeadLetter) error {
		n++
		if c.JSON {
			return lines.Encode(l)
		}
		if n == 1 {
			fmt.Fprintln(table, connect.Before("SHARD", l.Shard)+"ID\tWHERE\tPUT ASIDE\tREASON")
		}
		fmt.Fprintf(table, "%s%d\t%s\t%s\t%s\n", connect.Before(l.Shard, l.Shard), l.ID, whereOf(l), l.At.Format(time.RFC3339), l.Reason)
		return nil
	})
	if n == 0 && !c.JSON && err == nil {
		fmt.Fprintln(streams.Out, "there are no dead letters")
	}
	return errors.Join(err, table.Flush())
}

// eachDeadLetter calls `do` for each dead letter, in order of id. If databases are unavailable, it
// continues with the other databases, and returns an error at the end.
func eachDeadLetter(ctx context.Context, dbs *cluster.Cluster, do func(operations.DeadLetter) error) error {
	letters, after := operations.New(operations.Config{Cluster: dbs}), int64(0)
	for {
		page, err := letters.DeadLetters(ctx, after, deadLetterPage)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			return dbs.Complete()
		}
		for _, l := range page {
			if err := do(l); err != nil {
				return err
			}
			after = l.ID
		}
	}
}

// whereOf returns the origin of a dead letter: the place of the message in its broker, or the place
// of the event in the log.
func whereOf(l operations.DeadLetter) string {
	if l.Origin != "" {
		return l.Origin
	}
	return fmt.Sprintf("partition %d, %s", *l.Partition, l.Position)
}

type selection struct {
	ID  []int64 `arg:"" optional:"" help:"The ids, as list shows them."`
	All bool    `help:"Process all dead letters." env:"-"`
}

// Validate implements kong's validation.
func (s selection) Validate() error {
	if s.All == (len(s.ID) > 0) {
		return errors.New("give the ids of dead letters, or --all")
	}
	return nil
}

// each calls `do` for each selected dead letter. It continues after errors and joins them.
func (s selection) each(ctx context.Context, dbs *cluster.Cluster, do func(id int64) error) error {
	var errs []error
	ids := s.ID
	if s.All { // list them before the first retry, since a retried event may become a new dead letter
		errs = append(errs, eachDeadLetter(ctx, dbs, func(l operations.DeadLetter) error {
			ids = append(ids, l.ID)
			return nil
		}))
	}
	for _, id := range ids {
		errs = append(errs, do(id))
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

// Run retries the selected dead letters. It continues after errors, and fails at the end if any
// event still cannot be decoded.
func (c *deadLettersRetryCmd) Run(ctx context.Context, streams Streams) error {
	dbs, err := connect.Databases(ctx, c.Database, streams.Err)
	if err != nil {
		return err
	}
	defer dbs.Close()
	letters := operations.New(operations.Config{
		Cluster: dbs, Append: cluster.NewAppender(dbs, func(s *cluster.Database) events.Append { return s.Log.AppendOwn }).Append,
	})
	return c.each(ctx, dbs, func(id int64) error {
		if err := letters.RetryDeadLetter(ctx, operations.OSUser(), id); err != nil {
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

// Run deletes the selected dead letters. It prints each letter as JSON, so that the operator still
// has a letter that was discarded by mistake.
func (c *deadLettersDiscardCmd) Run(ctx context.Context, streams Streams) error {
	if c.selection.All {
		if err := c.Ask(streams, "Discard all dead letters?"); err != nil {
			return err
		}
	}
	dbs, err := connect.Databases(ctx, c.Database, streams.Err)
	if err != nil {
		return err
	}
	defer dbs.Close()
	letters, lines := operations.New(operations.Config{Cluster: dbs}), json.NewEncoder(streams.Out)
	return c.each(ctx, dbs, func(id int64) error {
		l, err := letters.DiscardDeadLetter(ctx, operations.OSUser(), id)
		if err != nil {
			return err
		}
		return lines.Encode(l)
	})
}
