package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/badged/badged/internal/base/progress"
	"github.com/badged/badged/internal/cli/archives"
	"github.com/badged/badged/internal/cli/connect"
	"github.com/badged/badged/internal/cli/terminal"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/operations"
	"github.com/badged/badged/internal/partition/archive"
	"github.com/badged/badged/internal/partition/archiving"
	"github.com/badged/badged/internal/partition/bucket"
	"github.com/badged/badged/internal/pg/pgsession"
	"github.com/badged/badged/internal/server/config"
)

type archiveCmd struct {
	config.Database `embed:""`
	Before          time.Time     `help:"Archive events appended before this time, such as 2026-01-31T00:00:00Z. A range of the log that also has later events is not archived." placeholder:"TIME" env:"-"`
	OlderThan       time.Duration `help:"Archive events that were appended at least this long ago, such as 2160h, instead of --before." placeholder:"DURATION" env:"-"`
	TakeOver        bool          `help:"Archive nothing. Make this database the owner of the archive, after it was restored or has replaced the database that wrote to the archive. Then erase again all users who, according to the archive, were erased since." env:"-"`
	GiveUp          []string      `help:"Archive nothing. Give up files of the archive that are missing or damaged, such as events_p03.00002, or events_p03.00002-00007 for several. Archiving and erasing then work without these files." placeholder:"FILE" env:"-"`
	Reencrypt       bool          `help:"Archive nothing. Encrypt all files of the archive that are in plain text or encrypted with another key, with the first key of --archive-keys. Repeat the command after an interruption: it encrypts the remaining files." env:"-"`
	To              string        `help:"The archive, a directory or s3://bucket/prefix. If it exists, files are added to it." required:"" placeholder:"DIR" env:"-"`
	archives.Keys   `embed:""`
	connect.Wait    `embed:""`
	JSON            bool `name:"json" help:"Print JSON: one line for each partition, and a last line with the summary." env:"-"`
	Quiet           bool `short:"q" help:"Show no progress." env:"-"`
}

// Validate implements kong's validation.
func (c *archiveCmd) Validate() error {
	errs := []error{c.Database.Validate(), c.Check()}
	if n := map[bool]int{true: 1}; n[!c.Before.IsZero()]+n[c.OlderThan != 0]+n[c.TakeOver]+n[len(c.GiveUp) > 0]+n[c.Reencrypt] != 1 {
		errs = append(errs, errors.New("give one of --before TIME, --older-than DURATION, --take-over, --give-up FILE and --reencrypt"))
	}
	if c.OlderThan < 0 {
		errs = append(errs, errors.New("--older-than must be more than 0s"))
	}
	if c.Reencrypt && c.ArchiveKeys == "" {
		errs = append(errs, errors.New("--reencrypt needs --archive-keys FILE: its first key encrypts, and the others decrypt"))
	}
	if c.Before.After(time.Now()) {
		errs = append(errs, errors.New("--before must be in the past"))
	}
	if err := bucket.Check(c.To); err != nil {
		errs = append(errs, fmt.Errorf("--to: %w", err))
	}
	return errors.Join(errs...)
}

// archivedSum is the summary at the end of `badged archive --json`.
type archivedSum struct {
	Partitions int   `json:"partitions"`
	Files      int   `json:"files"`
	Events     int64 `json:"events"`
	Bytes      int64 `json:"bytes"`
	Dropped    int   `json:"dropped"`
	// kept says why later events of the first partition are still in its log.
	kept string
	// held is true if a long-open transaction is the only reason why the command has not dropped
	// more rows of the log.
	held bool
}

func (s *archivedSum) add(p archiving.Result) {
	if s.Partitions == 0 {
		s.kept = p.Kept
	}
	s.held = s.held || p.Held
	s.Partitions++
	s.Files += p.Files
	s.Events += p.Events
	s.Bytes += p.Bytes
	s.Dropped += p.Dropped
}

// addAll adds the totals of another database.
func (s *archivedSum) addAll(more archivedSum) {
	if s.Partitions == 0 {
		s.kept = more.kept
	}
	s.held = s.held || more.held
	s.Partitions += more.Partitions
	s.Files += more.Files
	s.Events += more.Events
	s.Bytes += more.Bytes
	s.Dropped += more.Dropped
}

// Run archives events and prints the result.
func (c *archiveCmd) Run(ctx context.Context, streams Streams) error {
	dbs, err := connect.Databases(ctx, c.Database, streams.Err)
	if err != nil {
		return err
	}
	defer dbs.Close()
	if c.TakeOver {
		return dbs.Each(ctx, func(s *cluster.Database) error { return c.Keys.TakeOver(ctx, streams.Out, s, c.To, c.JSON) })
	}
	if len(c.GiveUp) > 0 {
		return c.Keys.GiveUp(ctx, streams.Out, dbs, c.To, c.GiveUp, c.JSON)
	}
	if c.Reencrypt {
		return dbs.Each(ctx, func(s *cluster.Database) error {
			to := s.Archive(c.To)
			return operations.Audited(ctx, s.Pool, operations.OSUser(), "archive.reencrypt", reencryptArguments{to}, func(ctx context.Context) (any, error) {
				return c.reencrypt(ctx, streams, s, to)
			})
		})
	}
	if c.OlderThan > 0 {
		c.Before = time.Now().Add(-c.OlderThan).UTC().Truncate(time.Second)
	}
	var sum archivedSum
	err = dbs.Each(ctx, func(s *cluster.Database) error {
		if _, err := pgsession.AgreedNow(ctx, s.Pool); err != nil {
			return fmt.Errorf("nothing was archived: %w", err)
		}
		to := s.Archive(c.To)
		store, err := c.Gathered(ctx, dbs, s, c.To)
		if err != nil {
			return err
		}
		return operations.Audited(ctx, s.Pool, operations.OSUser(), "archive", archiveArguments{c.Before, to}, func(ctx context.Context) (any, error) {
			done, err := c.archive(ctx, streams, s, store)
			sum.addAll(done)
			return done, err
		})
	})
	if err != nil && sum.Partitions == 0 {
		return err
	}
	return errors.Join(err, c.finish(streams.Out, sum))
}

// archiveArguments has the arguments that the audit trail records for an archiving.
type archiveArguments struct {
	Before time.Time `json:"before"`
	To     string    `json:"to"`
}

// reencryptArguments has the arguments that the audit trail records for --reencrypt.
type reencryptArguments struct {
	Archive string `json:"archive"`
}

// resealed is the result of --reencrypt.
type resealed struct {
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
}

// reencrypt encrypts the files of an archive with the first key of --archive-keys. It skips files
// that are encrypted with this key already.
func (c *archiveCmd) reencrypt(ctx context.Context, streams Streams, s *cluster.Database, to string) (done resealed, err error) {
	store, err := c.Store(to)
	if err != nil {
		return done, err
	}
	sealed, ok := store.(archive.Sealed)
	if !ok {
		return done, errors.New("--reencrypt needs --archive-keys FILE")
	}
	err = archiving.Reseal(ctx, s.Pool, sealed, func(f archive.File) {
		done.Files++
		done.Bytes += f.Bytes
		if !c.Quiet && !c.JSON {
			fmt.Fprintln(streams.Err, "encrypted", sealed.Path(f.Name), "again")
		}
	})
	if err != nil {
		return done, fmt.Errorf("--reencrypt: %w", err)
	}
	if c.JSON {
		return done, json.NewEncoder(streams.Out).Encode(done)
	}
	_, err = fmt.Fprintf(streams.Out, "%s encrypted again, %s bytes; every file is now encrypted with the first key\n", terminal.Counted(int64(done.Files), "file"), progress.Count(done.Bytes))
	return done, err
}

func (c *archiveCmd) archive(ctx context.Context, streams Streams, s *cluster.Database, store archive.Store) (archivedSum, error) {
	meter, warn := metered(streams, connect.Prefix(s.Name)+"archive", c.Quiet)
	defer meter.Close()
	defer connect.Watch(ctx, s, warn)()
	var sum archivedSum
	var written error
	partitions := operations.BeginPartitions(meter, "archive", len(s.Held()), true)
	err := archiving.Run(ctx, archiving.Config{
		Pool: s.Pool, Log: s.Log, Store: store, Before: c.Before, MaxWait: c.MaxWait, Progress: partitions,
		Archived: func(p archiving.Result) {
			sum.add(p)
			partitions.Finish(1)
			if c.JSON || p.Files > 0 || p.Dropped > 0 {
				meter.Lines()
				written = errors.Join(written, c.print(streams.Out, p))
			}
		},
	})
	meter.Close()
	return sum, errors.Join(err, written)
}

func (c *archiveCmd) print(w io.Writer, p archiving.Result) error {
	if c.JSON {
		return json.NewEncoder(w).Encode(p)
	}
	_, err := fmt.Fprintf(w, "partition %d: %s in %s archived, %s dropped from the log; %s\n",
		p.Partition, terminal.Counted(p.Events, "event"), terminal.Counted(int64(p.Files), "file"), terminal.Counted(int64(p.Dropped), "table"), p.Kept)
	return err
}

// finish prints the summary. If nothing could be archived because a transaction has been open for
// long, finish fails, so that a scheduler that runs the command alerts an operator.
func (c *archiveCmd) finish(w io.Writer, sum archivedSum) error {
	nothing := sum.Files == 0 && sum.Dropped == 0
	if c.JSON {
		if err := json.NewEncoder(w).Encode(sum); err != nil || !nothing || !sum.held {
			return err
		}
	}
	if nothing && sum.held {
		return fmt.Errorf("nothing could be archived: in the first partition, %s; then run the command again", sum.kept)
	}
	if nothing {
		_, err := fmt.Fprintf(w, "nothing to archive; in the first partition, %s\n", sum.kept)
		return err
	}
	_, err := fmt.Fprintf(w, "%s of %s archived in %s, %s bytes\n", terminal.Counted(sum.Events, "event"),
		terminal.Counted(int64(sum.Partitions), "partition"), terminal.Counted(int64(sum.Files), "file"), progress.Count(sum.Bytes))
	return err
}
