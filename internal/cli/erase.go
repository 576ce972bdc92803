package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/admin"
	"github.com/badged/badged/internal/config"
	"github.com/badged/badged/internal/operators"
	"github.com/badged/badged/internal/progress"
	"github.com/badged/badged/internal/shards"
	"github.com/badged/badged/projector/archive"
	"github.com/badged/badged/projector/erasure"
)

type userEraseCmd struct {
	config.Database `embed:""`
	User            string `arg:"" help:"Id of the user."`
	Archive         string `help:"Archive, a directory or s3://bucket/prefix: required if a part of the log is archived." placeholder:"DIR" env:"-"`
	archiveKeys     `embed:""`
	JSON            bool `name:"json" help:"Print JSON." env:"-"`
}

// Run erases a user, and prints what was erased.
func (c *userEraseCmd) Run(ctx context.Context, streams Streams) error {
	if reason := events.CheckID(c.User); reason != "" {
		return fmt.Errorf("user id %s", reason)
	}
	cluster, err := openShards(ctx, c.Database)
	if err != nil {
		return err
	}
	defer cluster.Close()
	done, err := operators.Erase(ctx, cluster, admin.OSUser(), c.User, func(s *shards.Shard) (*archive.Archive, error) {
		if c.Archive == "" {
			return nil, nil //nolint:nilnil // no archive given
		}
		store, err := c.store(operators.ArchiveOf(s, c.Archive))
		if err != nil {
			return nil, fmt.Errorf("--archive: %w", err)
		}
		return archive.Continue(ctx, store)
	})
	if errors.Is(err, erasure.ErrArchived) {
		err = fmt.Errorf("%w: --archive DIR", err)
	}
	if err != nil && !cluster.Sharded() {
		return err
	}
	if c.JSON {
		return errors.Join(err, printJSON(streams.Out, done))
	}
	return errors.Join(err, printErasure(streams.Out, done))
}

// printErasure prints what was erased.
func printErasure(w io.Writer, r erasure.Erased) error {
	if r == (erasure.Erased{Partition: r.Partition, Counts: erasure.Counts{Kept: r.Kept}, Archived: erasure.Counts{Kept: r.Archived.Kept}}) {
		fmt.Fprintln(w, "badged held nothing of this user")
	} else {
		fmt.Fprintf(w, "erased %s, %s and %s; of the log, %s as a whole and the user from %s of others; of the audit trail, the id in %s\n",
			counted(r.Conversations, "conversation"), counted(r.Devices, "device"), counted(r.DeadLetters, "dead letter"),
			counted(r.Erased, "event"), progress.Count(r.Changed), counted(r.Actions, "record"))
	}
	if n := r.Archived.Erased + r.Archived.Changed; n > 0 {
		fmt.Fprintf(w, "of the archive, %s as a whole and the user from %s of others\n", counted(r.Archived.Erased, "event"), progress.Count(r.Archived.Changed))
	}
	if r.Kept += r.Archived.Kept; r.Kept > 0 {
		fmt.Fprintf(w, "the id stays in %s of others, as something else, such as the id of a conversation\n", counted(r.Kept, "event"))
	}
	return nil
}
