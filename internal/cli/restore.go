package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/badged/badged/internal/cli/archives"
	"github.com/badged/badged/internal/cli/connect"
	"github.com/badged/badged/internal/cli/terminal"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/operations"
	"github.com/badged/badged/internal/partition/archive"
	"github.com/badged/badged/internal/partition/archiving"
	"github.com/badged/badged/internal/partition/bucket"
	"github.com/badged/badged/internal/server/config"
)

type restoreCmd struct {
	config.Database `embed:""`
	From            []string `help:"The archive, a directory or s3://bucket/prefix. Repeat the flag for several archives." required:"" sep:"none" placeholder:"DIR" env:"-"`
	archives.Keys   `embed:""`
	JSON            bool `name:"json" help:"Print the summary as JSON." env:"-"`
	Quiet           bool `short:"q" help:"Show no progress." env:"-"`
}

// Validate implements kong's validation.
func (c *restoreCmd) Validate() error {
	errs := []error{c.Database.Validate()}
	for _, from := range c.From {
		if err := bucket.Check(from); err != nil {
			errs = append(errs, fmt.Errorf("--from: %w", err))
		}
	}
	return errors.Join(errs...)
}

// Run restores the log and prints how many events it appended.
func (c *restoreCmd) Run(ctx context.Context, streams Streams) error {
	dbs, err := connect.Databases(ctx, c.Database, streams.Err)
	if err != nil {
		return err
	}
	defer dbs.Close()
	if err := dbs.Complete(); err != nil {
		return fmt.Errorf("restoring needs all databases: %w", err)
	}
	cfg := archiving.RestoreConfig{}
	if cfg.From, err = c.sources(ctx, dbs); err != nil {
		return fmt.Errorf("--from: %w", err)
	}
	meter, warn := metered(streams, "restore", c.Quiet)
	defer meter.Close()
	held := 0
	for _, s := range dbs.Databases() {
		held += len(s.Held())
		defer connect.Watch(ctx, s, warn)()
		cfg.Into = append(cfg.Into, archiving.Empty{Name: s.Name, Pool: s.Pool, Log: s.Log})
	}
	partitions := operations.BeginPartitions(meter, "restore", held, true)
	cfg.Progress, cfg.Filled = partitions, func(int) { partitions.Finish(1) }
	all, err := c.restore(ctx, dbs, cfg)
	meter.Close()
	if err != nil {
		return err
	}
	var sum archiving.Restored
	for _, done := range all {
		sum.Partitions += done.Partitions
		sum.Files += done.Files
		sum.Events += done.Events
		sum.GivenUp += done.GivenUp
		sum.Without = append(sum.Without, done.Without...)
	}
	return c.print(streams.Out, sum)
}

// restore restores the log of all databases, and records this in the audit trail of each.
func (c *restoreCmd) restore(ctx context.Context, dbs *cluster.Cluster, cfg archiving.RestoreConfig) (all []archiving.Restored, err error) {
	run := func(ctx context.Context) error {
		all, err = archiving.Restore(ctx, cfg)
		return err
	}
	for i, s := range dbs.Databases() {
		inner := run
		run = func(ctx context.Context) error {
			return operations.Audited(ctx, s.Pool, operations.OSUser(), "restore", map[string]any{"from": c.From}, func(ctx context.Context) (any, error) {
				if err := inner(ctx); err != nil {
					return nil, err
				}
				return all[i], nil
			})
		}
	}
	return all, run(ctx)
}

// sources returns the archives to restore. If a location of --from is not itself an archive, it
// returns the archives inside it that are named like the databases.
func (c *restoreCmd) sources(ctx context.Context, dbs *cluster.Cluster) (from []archive.Store, err error) {
	for _, location := range c.From {
		places := []string{location}
		for _, s := range dbs.Databases() {
			if s.Name != "" {
				places = append(places, s.Archive(location))
			}
		}
		before := len(from)
		var none error
		for i, place := range places {
			store, err := c.Store(place)
			if err == nil {
				_, err = archive.OpenStore(ctx, store)
			}
			if errors.Is(err, archive.ErrNone) {
				none = errors.Join(none, err)
				continue
			}
			if err != nil {
				return nil, err
			}
			from = append(from, store)
			if i == 0 {
				break
			}
		}
		if len(from) == before {
			return nil, fmt.Errorf("%w; if it is the folder of a cluster whose databases have other names, or this is a single database, give --from for the archive of each of its databases, such as --from DIR/NAME", none)
		}
	}
	return from, nil
}

func (c *restoreCmd) print(w io.Writer, done archiving.Restored) error {
	if c.JSON {
		return json.NewEncoder(w).Encode(done)
	}
	_, err := fmt.Fprintf(w, "%s of %s restored from %s; projectors fold them next, and badged lag shows how far they are\n",
		terminal.Counted(done.Events, "event"), terminal.Counted(int64(done.Partitions), "partition"), terminal.Counted(int64(done.Files), "file"))
	if err == nil && done.GivenUp > 0 {
		_, err = fmt.Fprintf(w, "%s of files that were given up are lost\n", terminal.Counted(done.GivenUp, "event"))
	}
	if err == nil && len(done.Without) > 0 {
		_, err = fmt.Fprintf(w, "the archives have no events of %s: none were archived, or the archive of another database is missing\n", cluster.Named(done.Without))
	}
	return err
}
