package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/badged/badged/internal/admin"
	"github.com/badged/badged/internal/config"
	"github.com/badged/badged/internal/operators"
	"github.com/badged/badged/internal/progress"
	"github.com/badged/badged/internal/shards"
	"github.com/badged/badged/projector/archiving"
)

// restoreCmd is `badged restore`.
type restoreCmd struct {
	config.Database `embed:""`
	From            string `help:"Archive, a directory or s3://bucket/prefix." required:"" placeholder:"DIR" env:"-"`
	archiveKeys     `embed:""`
	JSON            bool `name:"json" help:"Print the summary as JSON." env:"-"`
	Quiet           bool `short:"q" help:"Show no progress." env:"-"`
}

// Run restores the log and prints what it has appended.
func (c *restoreCmd) Run(ctx context.Context, streams Streams) error {
	cluster, err := openShards(ctx, c.Database)
	if err != nil {
		return err
	}
	defer cluster.Close()
	var watched io.Writer
	if !c.Quiet {
		watched = streams.Err
	}
	meter := progress.New(watched, "restore", nil)
	defer meter.Close()
	var sum archiving.Restored
	err = operators.Each(ctx, cluster, func(s *shards.Shard) error {
		from := operators.ArchiveOf(s, c.From)
		store, err := c.store(from)
		if err != nil {
			return fmt.Errorf("--from: %w", err)
		}
		partitions := admin.BeginPartitions(meter, "restore", len(s.Held()), true)
		return admin.Audited(ctx, s.Pool, admin.OSUser(), "restore", map[string]string{"from": from}, func(ctx context.Context) (any, error) {
			done, err := archiving.Restore(ctx, archiving.RestoreConfig{
				Pool: s.Pool, Log: s.Log, Store: store, Progress: partitions, Filled: func(int) { partitions.Finish(1) },
			})
			sum.Partitions += done.Partitions
			sum.Files += done.Files
			sum.Events += done.Events
			return done, err
		})
	})
	meter.Close()
	if err != nil && sum.Partitions == 0 {
		return err
	}
	return errors.Join(err, c.print(streams.Out, sum))
}

// print prints the summary.
func (c *restoreCmd) print(w io.Writer, done archiving.Restored) error {
	if c.JSON {
		return json.NewEncoder(w).Encode(done)
	}
	_, err := fmt.Fprintf(w, "%s of %s restored from %s; projectors fold them next, and badged lag shows how far they are\n",
		counted(done.Events, "event"), counted(int64(done.Partitions), "partition"), counted(int64(done.Files), "file"))
	return err
}
