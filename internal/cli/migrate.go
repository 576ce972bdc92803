package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/cli/connect"
	"github.com/badged/badged/internal/cli/terminal"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/pg/pgfault"
	"github.com/badged/badged/internal/pg/pgsession"
	"github.com/badged/badged/internal/pg/pooler"
	"github.com/badged/badged/internal/server/config"
	"github.com/badged/badged/migrations"
)

type migrateCmd struct {
	Up     migrateUpCmd     `cmd:"" help:"Apply the pending migrations."`
	Status migrateStatusCmd `cmd:"" help:"Show which migrations are applied."`
	Grant  migrateGrantCmd  `cmd:"" help:"Grant a database role the privileges of a kind of role, and revoke all its other privileges in the schema badged."`
}

type migrateGrantCmd struct {
	config.Database `embed:""`
	Kind            string `arg:"" enum:"server,publisher,consumer,reader" help:"server, publisher, consumer or reader."`
	Role            string `arg:"" help:"The role. It must exist."`
}

// Run grants the privileges in every database. The role of the connection must own the schema.
func (c *migrateGrantCmd) Run(ctx context.Context, streams Streams) error {
	databases, err := connect.Separate(ctx, c.Database, false)
	if err != nil {
		return err
	}
	defer connect.Close(databases)
	return connect.EachCandidate(databases, func(d cluster.Candidate) error {
		if err := connect.Migrated(ctx, d); err != nil {
			return err
		}
		if err := pgsession.CheckOwner(ctx, d.Pool, "grant roles their privileges"); err != nil {
			return err
		}
		if err := migrations.Grant(ctx, d.Pool.Config().ConnConfig, migrations.RoleKind(c.Kind), c.Role); err != nil {
			return err
		}
		_, err := fmt.Fprintf(streams.Out, "%srole %s has the privileges of a %s in the schema badged, and no others\n", connect.Prefix(d.Name), c.Role, c.Kind)
		return err
	})
}

type migrateUpCmd struct {
	config.Database `embed:""`
	Partitions      *int `help:"Number of partitions, of one database or of all shards together, 1 to 1024. It only applies to an empty database; later, partition split makes more partitions. Default: 4, or 4 for each shard." placeholder:"N"`
}

// Validate implements kong's validation.
func (c *migrateUpCmd) Validate() error {
	if n := c.Partitions; n != nil && (*n < 1 || *n > events.MaxPartitions) {
		return fmt.Errorf("--partitions must be from 1 to %d, is %d", events.MaxPartitions, *n)
	}
	return nil
}

// partitions returns --partitions, 0 if the flag is not given.
func (c *migrateUpCmd) partitions() int {
	if c.Partitions == nil {
		return 0
	}
	return *c.Partitions
}

// Run applies the pending migrations and prints them. If there are several databases, it then makes
// them one cluster.
func (c *migrateUpCmd) Run(ctx context.Context, streams Streams) error {
	partitions := c.partitions()
	if c.Sharded() {
		var err error
		if partitions, err = c.checkShards(ctx); err != nil {
			return fmt.Errorf("nothing was migrated: %w", err)
		}
	}
	all, err := c.All()
	if err != nil {
		return err
	}
	if err := migrateAll(ctx, streams, all, partitions); err != nil {
		return err
	}
	if !c.Sharded() {
		// Open the log to check it: fail if servers would refuse it, for example because it must be
		// renumbered.
		pool, _, err := connect.Database(ctx, c.Database)
		if err != nil {
			return err
		}
		pool.Close()
		return nil
	}
	var guard cluster.Guard
	databases, err := connect.Pools(ctx, c.Database, &guard)
	if err != nil {
		return err
	}
	made, err := cluster.Form(ctx, slices.Clone(databases))
	if err != nil {
		connect.Close(databases)
		return err
	}
	if made.Adopted != "" {
		fmt.Fprintf(streams.Out, "shard %s: keeps its data and all partitions\n", made.Adopted)
	}
	dbs, err := cluster.Open(ctx, cluster.Config{Databases: databases, Guard: &guard})
	if err != nil {
		return err
	}
	defer dbs.Close()
	for _, s := range dbs.Databases() {
		state, held := "holds", cluster.Named(s.Held())
		if slices.Contains(made.Joined, s.Name) {
			state = "has joined the cluster and holds"
		}
		if len(s.Held()) == 0 {
			held = "no partitions: move some to it"
		}
		fmt.Fprintf(streams.Out, "shard %s: %s %s\n", s.Name, state, held)
	}
	return nil
}

// checkShards returns the number of partitions of the cluster. It fails if a database cannot be
// reached, or if the databases cannot form one cluster.
func (c *migrateUpCmd) checkShards(ctx context.Context) (partitions int, err error) {
	databases, err := connect.Pools(ctx, c.Database, &cluster.Guard{})
	if err != nil {
		return 0, err
	}
	defer connect.Close(databases)
	// Detect databases of another cluster first: their numbers of partitions would cause a
	// misleading error.
	if err := cluster.Identify(ctx, slices.Clone(databases), true); err != nil {
		return 0, err
	}
	if partitions, err = c.partitionsOfAll(ctx, databases); err != nil {
		return 0, err
	}
	return partitions, cluster.CheckForm(ctx, databases)
}

// partitionsPerShard is the default number of partitions per database in a new cluster.
const partitionsPerShard = 4

// partitionsOfAll returns the number of partitions with which every database of the cluster is
// created. If some databases have partitions already, it returns the number of these partitions. It
// fails if the databases differ in this number, or if --partitions is another number.
func (c *migrateUpCmd) partitionsOfAll(ctx context.Context, databases []cluster.Candidate) (n int, err error) {
	of := map[string]int{}
	if err := connect.EachCandidate(databases, func(d cluster.Candidate) (err error) {
		of[d.Name], err = migrations.Partitions(ctx, d.Pool.Config().ConnConfig)
		return err
	}); err != nil {
		return 0, err
	}
	var first string
	for _, d := range databases {
		switch have := of[d.Name]; {
		case have == 0:
		case n != 0 && have != n:
			return 0, fmt.Errorf("shard %s has %d partitions, and shard %s has %d: all shards of a cluster must have the same number", d.Name, have, first, n)
		case c.partitions() != 0 && have != c.partitions():
			return 0, fmt.Errorf("the number of partitions of shard %s is %d, not %d: it is settled when the first database is created", d.Name, have, c.partitions())
		default:
			n, first = have, d.Name
		}
	}
	if n == 0 {
		n = cmp.Or(c.partitions(), min(partitionsPerShard*len(databases), events.MaxPartitions))
	}
	return n, nil
}

// perServer is the number of concurrent migrations on one Postgres server. A greater number would
// hardly be faster. Each migration needs many locks, and the number of locks on a server is
// limited.
const perServer = 2

// migrateAll applies the pending migrations of all databases in parallel. It prints all lines
// about a database together. After an error it continues with the other databases.
func migrateAll(ctx context.Context, streams Streams, all []config.NamedDatabase, partitions int) error {
	configs := make([]*pgxpool.Config, len(all))
	servers := map[string]chan struct{}{}
	for i, s := range all {
		var err error
		if configs[i], err = s.PoolConfig(); err != nil {
			return err
		}
		servers[config.ServerOf(configs[i])] = make(chan struct{}, perServer)
	}
	var printing sync.Mutex
	migrate := func(i int) error {
		lines, err := migrateOne(ctx, all[i], configs[i].ConnConfig, partitions, func(text string) {
			printing.Lock()
			defer printing.Unlock()
			fmt.Fprintln(streams.Err, text)
		})
		printing.Lock()
		defer printing.Unlock()
		for _, line := range lines {
			fmt.Fprintf(streams.Out, "%s%s\n", connect.Prefix(all[i].Name), line)
		}
		return err
	}
	errs := make([]error, len(all))
	var begun sync.WaitGroup
	for i := range all {
		begun.Go(func() {
			server := servers[config.ServerOf(configs[i])]
			server <- struct{}{}
			errs[i] = migrate(i)
			<-server
		})
	}
	begun.Wait()
	done := 0
	for i, s := range all {
		// Try again now that no other migration runs, since the server may have enough locks for a
		// single migration.
		if len(all) > 1 && pgfault.FaultOf(errs[i]) == pgfault.OutOfMemory {
			errs[i] = migrate(i)
		}
		if errs[i] == nil {
			done++
		} else if pgfault.FaultOf(errs[i]) == pgfault.OutOfMemory {
			errs[i] = fmt.Errorf("%w; the migration needs about %d locks at a time: raise max_locks_per_transaction of the server", errs[i], locksPerPartition*partitions)
		}
		errs[i] = connect.InShard(s.Name, errs[i])
	}
	err := errors.Join(errs...)
	if err != nil && len(all) > 1 {
		return fmt.Errorf("%d of %d shards are migrated; repeat the command for the others: %w", done, len(all), err)
	}
	return err
}

// locksPerPartition is about the number of locks that the largest migration needs per partition.
const locksPerPartition = 45

// migrateOne applies the pending migrations of one database and returns the lines to print at
// the end. It calls `tell` with each line to print at once, such as a line about a retry.
func migrateOne(ctx context.Context, s config.NamedDatabase, conn *pgx.ConnConfig, partitions int, tell func(string)) (lines []string, err error) {
	if _, err := pooler.Find(ctx, conn); err != nil {
		return nil, err
	}
	applied, err := migrations.Up(ctx, migrations.Config{
		Conn: conn, Partitions: partitions,
		Retrying: func(err error, wait time.Duration) {
			tell(fmt.Sprintf("badged: %sa migration could not get its locks and was rolled back; trying again in %v: %v", connect.Prefix(s.Name), wait, err))
		},
	})
	for _, m := range applied {
		lines = append(lines, "applied "+m.Name)
	}
	if err == nil && len(applied) == 0 {
		lines = append(lines, "nothing to do: every migration is applied")
	}
	return lines, err
}

type migrateStatusCmd struct {
	config.Database `embed:""`
	JSON            bool `name:"json" help:"Print JSON." env:"-"`
}

// migrationRow is a migration in the output of `badged migrate status`.
type migrationRow struct {
	Shard     string    `json:"shard,omitempty"`
	Migration string    `json:"migration"`
	AppliedAt time.Time `json:"applied_at,omitzero"` // absent if the migration is pending
}

// Run prints all migrations. It fails if any is pending, so that scripts can check this.
func (c *migrateStatusCmd) Run(ctx context.Context, streams Streams) error {
	databases, err := connect.Separate(ctx, c.Database, true)
	if err != nil {
		return err
	}
	defer connect.Close(databases)
	rows := []migrationRow{}
	states := map[string]migrations.State{}
	err = connect.EachCandidate(databases, func(d cluster.Candidate) error {
		all, err := migrations.Status(ctx, d.Pool.Config().ConnConfig)
		if err != nil {
			return err
		}
		for _, m := range all {
			rows = append(rows, migrationRow{d.Name, m.Name, m.AppliedAt.UTC()})
		}
		state, err := migrations.StateOf(ctx, d.Pool)
		if err != nil {
			return err
		}
		states[d.Name] = state
		if lacks := state.Lacks(); lacks != "" {
			return fmt.Errorf("%s; run `badged migrate up`", lacks)
		}
		return nil
	})
	if uneven := migrations.Uneven(states); err == nil && uneven != "" {
		fmt.Fprintln(streams.Err, "badged: "+uneven)
	}
	if c.JSON {
		return errors.Join(terminal.PrintJSON(streams.Out, rows), err)
	}
	table := tabwriter.NewWriter(streams.Out, 0, 0, 2, ' ', 0)
	if c.Sharded() {
		fmt.Fprint(table, "SHARD\t")
	}
	fmt.Fprintln(table, "MIGRATION\tAPPLIED")
	for _, r := range rows {
		applied := "pending"
		if !r.AppliedAt.IsZero() {
			applied = r.AppliedAt.Format(time.RFC3339)
		}
		fmt.Fprintf(table, "%s%s\t%s\n", connect.Before(r.Shard, r.Shard), r.Migration, applied)
	}
	return errors.Join(table.Flush(), err)
}
