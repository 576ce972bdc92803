package cli

import (
	"context"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/config"
	"github.com/badged/badged/internal/pooler"
	"github.com/badged/badged/migrations"
	"github.com/badged/badged/projector"
	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/pubsub"
)

// migrateCmd is `badged migrate`.
type migrateCmd struct {
	Up     migrateUpCmd     `cmd:"" help:"Apply the pending migrations."`
	Status migrateStatusCmd `cmd:"" help:"Show which migrations are applied."`
	Grant  migrateGrantCmd  `cmd:"" help:"Grant a database role the privileges of a kind, and revoke all others."`
}

type migrateGrantCmd struct {
	config.Database `embed:""`
	Kind            string `arg:"" enum:"server,publisher,reader" help:"server, publisher or reader."`
	Role            string `arg:"" help:"The role. It must exist."`
}

// Run grants the privileges. Only the owner of the schema can.
func (c *migrateGrantCmd) Run(ctx context.Context, streams Streams) error {
	cfg, err := c.PoolConfig()
	if err != nil {
		return err
	}
	all, err := migrations.Status(ctx, cfg.ConnConfig)
	if err != nil {
		return err
	}
	if n := migrations.Pending(all); n > 0 {
		return fmt.Errorf("%d of %d migrations are pending; run `badged migrate up`, then repeat this command", n, len(all))
	}
	if err := migrations.Grant(ctx, cfg.ConnConfig, migrations.RoleKind(c.Kind), c.Role); err != nil {
		return err
	}
	fmt.Fprintf(streams.Out, "role %s has the privileges of a %s in the schema badged, and no others\n", c.Role, c.Kind)
	return nil
}

type migrateUpCmd struct {
	config.Database `embed:""`
	Partitions      int `help:"Partitions of an empty database, 1 to 256; cannot be changed later. Default: 16." placeholder:"N"`
}

// Validate implements kong's validation.
func (c *migrateUpCmd) Validate() error {
	if c.Partitions < 0 || c.Partitions > events.MaxPartitions {
		return fmt.Errorf("--partitions must be from 1 to %d", events.MaxPartitions)
	}
	return nil
}

// Run applies the pending migrations and prints them.
func (c *migrateUpCmd) Run(ctx context.Context, streams Streams) error {
	cfg, err := c.PoolConfig()
	if err != nil {
		return err
	}
	if _, err := pooler.Find(ctx, cfg.ConnConfig); err != nil {
		return err
	}
	applied, err := migrations.Up(ctx, migrations.Config{
		Conn: cfg.ConnConfig, Partitions: c.Partitions,
		Retrying: func(err error, wait time.Duration) {
			fmt.Fprintf(streams.Err, "badged: a migration could not get its locks and was rolled back; trying again in %v: %v\n", wait, err)
		},
	})
	if err != nil {
		return err
	}
	for _, m := range applied {
		fmt.Fprintf(streams.Out, "applied %s\n", m.Name)
	}
	if len(applied) == 0 {
		fmt.Fprintln(streams.Out, "nothing to do: every migration is applied")
	}
	// Report a log that servers would refuse.
	pool, _, err := openDatabase(ctx, c.Database)
	if err != nil {
		return err
	}
	pool.Close()
	return nil
}

type migrateStatusCmd struct {
	config.Database `embed:""`
}

// Run prints every migration. It fails if some are pending, for scripts.
func (c *migrateStatusCmd) Run(ctx context.Context, streams Streams) error {
	cfg, err := c.PoolConfig()
	if err != nil {
		return err
	}
	all, err := migrations.Status(ctx, cfg.ConnConfig)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(streams.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "MIGRATION\tAPPLIED")
	for _, m := range all {
		applied := "pending"
		if !m.AppliedAt.IsZero() {
			applied = m.AppliedAt.UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(table, "%s\t%s\n", m.Name, applied)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if n := migrations.Pending(all); n > 0 {
		return fmt.Errorf("%d of %d migrations are pending; run `badged migrate up`", n, len(all))
	}
	return nil
}

// userCmd is `badged user`.
type userCmd struct {
	Show    userShowCmd    `cmd:"" help:"Show the badge of a user and its unread conversations."`
	Explain userExplainCmd `cmd:"" help:"Explain the badge of a user: each counted message, and what was not counted."`
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
	pool, log, err := openDatabase(ctx, c.Database)
	if err != nil {
		return err
	}
	defer pool.Close()
	s, err := badges.NewReader(pool, log.Partitions()).Snapshot(ctx, c.User)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(streams.Out, s)
	}
	return printSnapshot(streams, s, log.PartitionOf(c.User))
}

func printSnapshot(streams Streams, s pubsub.Snapshot, partition int) error {
	table := tabwriter.NewWriter(streams.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "user\t%s\ntotal\t%d\nmentions\t%d\n", s.UserID, s.Total, s.Mentions)
	categories := make([]string, 0, len(s.Categories))
	for c := range s.Categories {
		categories = append(categories, c)
	}
	slices.Sort(categories)
	for _, c := range categories {
		fmt.Fprintf(table, "  %s\t%d\n", c, s.Categories[c])
	}
	fmt.Fprintf(table, "version\t%d\nepoch\t%s\npartition\t%d\n", s.Version, s.Epoch, partition)
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

// openDatabase connects to a database that has been migrated.
func openDatabase(ctx context.Context, d config.Database) (*pgxpool.Pool, *events.Log, error) {
	cfg, err := d.PoolConfig()
	if err != nil {
		return nil, nil, err
	}
	if _, err := pooler.Find(ctx, cfg.ConnConfig); err != nil {
		return nil, nil, err
	}
	projector.ConfigurePool(cfg)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the database: %w", err)
	}
	log, err := events.Open(ctx, pool)
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return pool, log, nil
}
