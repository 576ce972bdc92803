package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/internal/admin"
	"github.com/badged/badged/internal/config"
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
	letters, err := openDeadLetters(ctx, c.Database)
	if err != nil {
		return err
	}
	defer letters.pool.Close()
	table := tabwriter.NewWriter(streams.Out, 0, 0, 2, ' ', 0)
	lines := json.NewEncoder(streams.Out)
	n := 0
	err = eachDeadLetter(ctx, letters, func(l deadletters.Letter) error {
		if c.JSON {
			return lines.Encode(admin.NewDeadLetter(l))
		}
		if n++; n == 1 {
			fmt.Fprintln(table, "ID\tWHERE\tPUT ASIDE\tREASON")
		}
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\n", l.ID, whereOf(l), l.At.UTC().Format(time.RFC3339), l.Reason)
		return nil
	})
	if err != nil {
		return err
	}
	if n == 0 && !c.JSON {
		fmt.Fprintln(streams.Out, "there are no dead letters")
	}
	return table.Flush()
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
func (s selection) each(ctx context.Context, letters deadLetters, do func(id int64) error) error {
	var errs []error
	ids := s.ID
	if s.All { // only those present now: a retried event may fail again
		errs = append(errs, eachDeadLetter(ctx, letters, func(l deadletters.Letter) error {
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

// Run retries the selected dead letters. It continues after an error, and
// fails if one still cannot be folded.
func (c *deadLettersRetryCmd) Run(ctx context.Context, streams Streams) error {
	letters, err := openDeadLetters(ctx, c.Database)
	if err != nil {
		return err
	}
	defer letters.pool.Close()
	return c.each(ctx, letters, func(id int64) error {
		if _, err := admin.RetryDeadLetter(ctx, letters.pool, letters.Letters, admin.OSUser(), id); err != nil {
			return err
		}
		_, err := fmt.Fprintf(streams.Out, "dead letter %d is in the log again\n", id)
		return err
	})
}

type deadLettersDiscardCmd struct {
	config.Database `embed:""`
	selection       `embed:""`
}

// Validate implements kong's validation.
func (c *deadLettersDiscardCmd) Validate() error {
	return errors.Join(c.Database.Validate(), c.selection.Validate())
}

// Run deletes the selected dead letters and prints each as JSON, so that a
// mistake loses nothing.
func (c *deadLettersDiscardCmd) Run(ctx context.Context, streams Streams) error {
	letters, err := openDeadLetters(ctx, c.Database)
	if err != nil {
		return err
	}
	defer letters.pool.Close()
	lines := json.NewEncoder(streams.Out)
	return c.each(ctx, letters, func(id int64) error {
		l, err := admin.DiscardDeadLetter(ctx, letters.pool, letters.Letters, admin.OSUser(), id)
		if err != nil {
			return err
		}
		return lines.Encode(l)
	})
}

// deadLetters accesses the dead letters of a database. The audit trail records
// each action.
type deadLetters struct {
	*deadletters.Letters
	pool *pgxpool.Pool
}

func openDeadLetters(ctx context.Context, d config.Database) (deadLetters, error) {
	pool, log, err := openDatabase(ctx, d)
	if err != nil {
		return deadLetters{}, err
	}
	return deadLetters{deadletters.New(pool, log), pool}, nil
}

func eachDeadLetter(ctx context.Context, letters deadLetters, do func(deadletters.Letter) error) error {
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
