package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"text/tabwriter"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/admin"
	"github.com/badged/badged/internal/config"
	"github.com/badged/badged/internal/operators"
	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/pubsub"
)

// userCmd is `badged user`.
type userCmd struct {
	Show    userShowCmd    `cmd:"" help:"Show the badge of a user and its unread conversations."`
	Explain userExplainCmd `cmd:"" help:"Explain the badge of a user: each counted message, and what was not counted."`
	Export  userExportCmd  `cmd:"" help:"Print everything that badged holds of a user, a line of JSON for each."`
	Erase   userEraseCmd   `cmd:"" help:"Remove everything that badged holds of a user, while the service runs."`
	Merge   userMergeCmd   `cmd:"" help:"Move what is unread for a guest to an account."`
}

type userShowCmd struct {
	config.Database `embed:""`
	User            string `arg:"" help:"Id of the user."`
	JSON            bool   `name:"json" help:"Print JSON." env:"-"`
}

// Run prints the badge of a user.
func (c *userShowCmd) Run(ctx context.Context, streams Streams) error {
	if reason := events.CheckID(c.User); reason != "" {
		return fmt.Errorf("user id %s", reason)
	}
	cluster, err := openShards(ctx, c.Database)
	if err != nil {
		return err
	}
	defer cluster.Close()
	shard, err := operators.Of(cluster, c.User)
	if err != nil {
		return err
	}
	if err := recordRead(ctx, shard.Pool, streams, admin.ReadUser, ofUser{c.User}); err != nil {
		return err
	}
	s, err := badges.NewReader(shard.Pool, cluster.Partitions()).Snapshot(ctx, c.User)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(streams.Out, s)
	}
	return printSnapshot(streams, s, cluster.PartitionOf(c.User), shard.Name)
}

// ofUser is the arguments of reads of a user in the audit trail.
type ofUser struct {
	User string `json:"user"`
}

// recordRead records in the audit trail what a command is about to show.
func recordRead(ctx context.Context, pool *pgxpool.Pool, streams Streams, action string, arguments any) error {
	recorded, err := admin.RecordRead(ctx, pool, action, arguments)
	if err == nil && !recorded {
		_, err = fmt.Fprintln(streams.Err, "not recorded in the audit trail: the role of the database may only read")
	}
	return err
}

func printSnapshot(streams Streams, s pubsub.Snapshot, partition int, shard string) error {
	table := tabwriter.NewWriter(streams.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "user\t%s\ntotal\t%d\nmentions\t%d\n", s.UserID, s.Total, s.Mentions)
	for _, c := range slices.Sorted(maps.Keys(s.Categories)) {
		fmt.Fprintf(table, "  %s\t%d\n", c, s.Categories[c])
	}
	fmt.Fprintf(table, "unread in\t%s\nversion\t%d\nepoch\t%s\npartition\t%d\n", counted(s.UnreadConversations, "conversation"), s.Version, s.Epoch, partition)
	if shard != "" {
		fmt.Fprintf(table, "shard\t%s\n", shard)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if s.Version == 0 {
		fmt.Fprintln(streams.Out, "\nNothing has ever happened to this user.")
		return nil
	}
	if len(s.Conversations) == 0 {
		fmt.Fprintln(streams.Out, "\nNothing is unread.")
		return nil
	}
	fmt.Fprintln(streams.Out)
	table = tabwriter.NewWriter(streams.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "CONVERSATION\tUNREAD\tMENTIONS\tFIRST UNREAD\tREAD\tLAST\tLEVEL\tCATEGORY\tMARKED\tVERSION")
	for _, c := range s.Conversations {
		marked := ""
		if c.MarkedUnread {
			marked = "unread"
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%d\n", c.ConversationID, c.Unread, c.Mentions,
			c.FirstUnreadSeq, c.ReadSeq, c.LastSeq, c.Level, c.Category, marked, c.Version)
	}
	if s.More {
		fmt.Fprintf(table, "… and more than these %d\n", len(s.Conversations))
	}
	return table.Flush()
}
