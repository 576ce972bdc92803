package cli

import (
	"context"
	"fmt"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/admin"
	"github.com/badged/badged/internal/config"
	"github.com/badged/badged/internal/operators"
	"github.com/badged/badged/internal/progress"
)

type userMergeCmd struct {
	config.Database `embed:""`
	Guest           string `arg:"" help:"Id of the guest."`
	Account         string `arg:"" help:"Id of the account with which the guest has signed in."`
	JSON            bool   `name:"json" help:"Print JSON." env:"-"`
}

// Run moves what is unread for a guest to an account, and prints how much that was.
func (c *userMergeCmd) Run(ctx context.Context, streams Streams) error {
	if reason := events.CheckID(c.Guest); reason != "" {
		return fmt.Errorf("id of the guest %s", reason)
	}
	if reason := events.CheckID(c.Account); reason != "" {
		return fmt.Errorf("id of the account %s", reason)
	}
	cluster, err := openShards(ctx, c.Database)
	if err != nil {
		return err
	}
	defer cluster.Close()
	r, err := operators.Merge(ctx, cluster, admin.OSUser(), c.Guest, c.Account)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(streams.Out, r)
	}
	fmt.Fprintf(streams.Out, "moved %s with %s\n", counted(int64(r.Conversations), "conversation"), counted(r.Messages, "unread message"))
	if r.Left > 0 {
		fmt.Fprintf(streams.Out, "%s of them were not moved: too many are unread\n", progress.Count(r.Left))
	}
	if r.Rooms > 0 {
		fmt.Fprintf(streams.Out, "the guest stays a member of %s: publish room.joined for the account, with up_to_seq\n", counted(int64(r.Rooms), "room"))
	}
	return nil
}
