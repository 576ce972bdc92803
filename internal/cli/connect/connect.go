// Package connect connects commands to the databases that their flags name.
//
// It does not know the commands that use it. ADR 115 says why it refuses some connection
// poolers.
package connect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/pg/pooler"
	"github.com/badged/badged/internal/server/config"
	"github.com/badged/badged/migrations"
	"github.com/badged/badged/projector"
)

// Database connects to a single database. It fails if [events.Open] fails: the database has no log,
// or its log must be renumbered.
func Database(ctx context.Context, d config.Database) (*pgxpool.Pool, *events.Log, error) {
	cfg, err := d.PoolConfig()
	if err != nil {
		return nil, nil, err
	}
	projector.ConfigurePool(cfg)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the database: %w", err)
	}
	if err := pooler.OfPool(ctx, pool); err != nil {
		pool.Close()
		return nil, nil, err
	}
	log, err := events.Open(ctx, pool)
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return pool, log, nil
}

// Databases connects to all databases of a cluster, or to the single database. It fails if
// migrations are pending. It prints a warning if the databases have different versions of the
// schema. A database may be unavailable: see [cluster.Database.Err]. The caller must close the
// cluster.
func Databases(ctx context.Context, d config.Database, warnings io.Writer) (*cluster.Cluster, error) {
	var guard cluster.Guard
	databases, err := Pools(ctx, d, &guard)
	if err != nil {
		return nil, err
	}
	states := map[string]migrations.State{}
	check := func(ctx context.Context, i int) (err error) {
		states[databases[i].Name], err = migrated(ctx, databases[i])
		return err
	}
	if !d.Sharded() { // check the schema before cluster.Open, whose statements would fail on an old schema
		if err := check(ctx, 0); err != nil {
			Close(databases)
			return nil, err
		}
	}
	dbs, err := cluster.Open(ctx, cluster.Config{Databases: databases, Guard: &guard, Check: check})
	if err != nil {
		return nil, err
	}
	if uneven := migrations.Uneven(states); uneven != "" {
		fmt.Fprintln(warnings, "badged: "+uneven)
	}
	return dbs, nil
}

// Separate connects to databases for a command that works on each of them separately. The
// configuration need not have all databases of the cluster, and databases may be unavailable.
// Separate fails if a database has another name than in the configuration. If joining is true,
// databases may be new to the cluster: see [cluster.Identify]. Call [EachCandidate] with the
// result, and [Close] at the end.
func Separate(ctx context.Context, d config.Database, joining bool) ([]cluster.Candidate, error) {
	databases, err := Pools(ctx, d, &cluster.Guard{})
	if err != nil || !d.Sharded() {
		return databases, err
	}
	if err := cluster.Identify(ctx, databases, joining); err != nil {
		Close(databases)
		return nil, err
	}
	return databases, nil
}

// Pools returns a pool for each database. It connects to all databases in parallel, and fails if a
// connection goes through an unsupported pooler. guard refuses connections to a wrong database. If
// one of several databases is unavailable, Pools sets the field Err of its Candidate. If the only
// database cannot be reached, Pools fails.
func Pools(ctx context.Context, d config.Database, guard *cluster.Guard) ([]cluster.Candidate, error) {
	all, err := d.All()
	if err != nil {
		return nil, err
	}
	databases := make([]cluster.Candidate, len(all))
	err = AtOnce(all, func(i int, s config.NamedDatabase) (err error) {
		databases[i], err = open(ctx, s, guard)
		return err
	})
	if err = cmp.Or(err, ctx.Err()); err != nil {
		Close(databases)
		return nil, err
	}
	return databases, nil
}

// Patience is how long one of several databases may take to answer before it counts as
// unavailable.
const Patience = 10 * time.Second

// open returns the pool for one database; see [Pools].
func open(ctx context.Context, s config.NamedDatabase, guard *cluster.Guard) (d cluster.Candidate, err error) {
	d.Name = s.Name
	cfg, err := s.PoolConfig()
	if err != nil {
		return d, err
	}
	guard.Configure(cfg.ConnConfig, s.Name)
	projector.ConfigurePool(cfg)
	if d.Pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return d, fmt.Errorf("connect to the database: %w", err)
	}
	looking := ctx
	if s.Name != "" {
		var cancel context.CancelFunc
		looking, cancel = context.WithTimeout(ctx, Patience)
		defer cancel()
	}
	if err := pooler.OfPool(looking, d.Pool); err != nil {
		if s.Name == "" || errors.Is(err, pooler.ErrShared) || errors.Is(err, pooler.ErrOneSession) {
			return d, err
		}
		if refused, ok := errors.AsType[*pgconn.ConnectError](err); ok {
			d.Err = refused
		} else if looking.Err() != nil {
			d.Err = err
		} // ignore other errors: later statements return them again
	}
	return d, nil
}

// AtOnce calls `do` for all databases in parallel and joins the errors, in the order of the
// databases. Each error names its database.
func AtOnce(all []config.NamedDatabase, do func(i int, s config.NamedDatabase) error) error {
	errs := make([]error, len(all))
	var g sync.WaitGroup
	for i, s := range all {
		g.Go(func() { errs[i] = InShard(s.Name, do(i, s)) })
	}
	g.Wait()
	return errors.Join(errs...)
}

// EachCandidate calls `do` for one database after another. If a database is unavailable or `do`
// fails, EachCandidate continues with the next database. At the end it returns all errors; each
// error names its database.
func EachCandidate(databases []cluster.Candidate, do func(cluster.Candidate) error) error {
	var errs []error
	for _, d := range databases {
		err := d.Err
		if err == nil {
			err = do(d)
		}
		errs = append(errs, InShard(d.Name, err))
	}
	return errors.Join(errs...)
}

// Close closes the pools of databases.
func Close(databases []cluster.Candidate) {
	for _, d := range databases {
		if d.Pool != nil {
			d.Pool.Close()
		}
	}
}

// Migrated fails if migrations are pending in the database.
func Migrated(ctx context.Context, d cluster.Candidate) error {
	_, err := migrated(ctx, d)
	return err
}

func migrated(ctx context.Context, d cluster.Candidate) (migrations.State, error) {
	state, err := migrations.StateOf(ctx, d.Pool)
	if err != nil {
		return state, err
	}
	if lacks := state.Lacks(); lacks != "" {
		return state, fmt.Errorf("%s; run `badged migrate up`, then repeat this command", lacks)
	}
	return state, nil
}

// Follow does what [Databases] does, for long-running commands: the cluster reads at intervals
// which databases are available and which partitions have moved. Call stop at the end; it closes
// the cluster.
func Follow(ctx context.Context, d config.Database, warnings io.Writer) (dbs *cluster.Cluster, stop func(), err error) {
	if dbs, err = Databases(ctx, d, warnings); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var followed sync.WaitGroup
	followed.Go(func() { _ = dbs.Run(ctx) }) // Run returns nil
	return dbs, func() {
		cancel()
		followed.Wait()
		dbs.Close()
	}, nil
}

// InShard adds the name of a shard to an error. If name is "", which is the name of a single
// database, it returns err unchanged.
func InShard(name string, err error) error {
	if err != nil && name != "" {
		return fmt.Errorf("shard %s: %w", name, err)
	}
	return err
}

// Prefix returns the beginning of a line of output about a database. It returns "" if name is "",
// which is the name of a single database.
func Prefix(name string) string {
	if name == "" {
		return ""
	}
	return "shard " + name + ": "
}

// Before returns cell and a tab, for the beginning of a row of a printed table. name is the name of
// a database. If name is "", as for a single database, the table has no column for databases, and
// Before returns "".
func Before(cell, name string) string {
	if name == "" {
		return ""
	}
	return cell + "\t"
}

// After does what [Before] does, for a cell at the end of a row.
func After(cell, name string) string {
	if name == "" {
		return ""
	}
	return "\t" + cell
}

// Cluster does what [Databases] does, but fails if there is only a single database.
func Cluster(ctx context.Context, d config.Database, warnings io.Writer) (*cluster.Cluster, error) {
	dbs, err := Databases(ctx, d, warnings)
	if err != nil {
		return nil, err
	}
	if !dbs.Several() {
		dbs.Close()
		return nil, errors.New("the database is not one of several shards, so its partitions have no other place: see https://github.com/badged/badged/blob/main/docs/scaling.md")
	}
	return dbs, nil
}
