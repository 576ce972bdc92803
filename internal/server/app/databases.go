package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/metric"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/fold/lag"
	"github.com/badged/badged/internal/log/groupcommit"
	"github.com/badged/badged/internal/notify/outbound"
	"github.com/badged/badged/internal/obs"
	"github.com/badged/badged/internal/partition/replay"
	"github.com/badged/badged/internal/pg/dbclock"
	"github.com/badged/badged/internal/pg/pgfault"
	"github.com/badged/badged/internal/pg/pgsession"
	"github.com/badged/badged/internal/pg/pooler"
	"github.com/badged/badged/internal/server/config"
	"github.com/badged/badged/internal/server/revocation"
	"github.com/badged/badged/migrations"
	"github.com/badged/badged/projector"
)

// database has the parts that this process runs for one database, which is the only database or a
// shard.
type database struct {
	*cluster.Database
	config config.NamedDatabase
	// schema has the migrations that the database had at the last check.
	schema migrations.State
	// registry and log add the name of the shard as a label if there are several databases.
	registry prometheus.Registerer
	log      *slog.Logger
	faults   *pgfault.Watch
	// progress finds partitions of the database that are not being folded.
	progress *lag.Progress
	// conns are the sizes of the pools to the database.
	conns config.Connections
	// serving is the pool for requests. Folding has its own pool, so that requests do not delay
	// folding.
	serving *pgxpool.Pool
	// watching is the pool for statements that must not wait until requests release connections.
	watching *pgxpool.Pool
	targets  *outbound.Targets
	// revoked has the revoked tokens of the users of this database.
	revoked *revocation.List
	clock   dbclock.Clock
	// projector is nil if this process does not fold.
	projector *projector.Projector
	// folded is called with each batch that the projector of this process folds.
	folded func(projector.FoldedBatch)
}

// nameDatabases returns the databases of the configuration without connecting to them.
func (a *App) nameDatabases() ([]*database, error) {
	all, err := a.cfg.All()
	if err != nil {
		return nil, err
	}
	var databases []*database
	for _, s := range all {
		d := &database{config: s, registry: a.registry, log: a.log, folded: func(projector.FoldedBatch) {}}
		if s.Name != "" {
			d.registry = prometheus.WrapRegistererWith(prometheus.Labels{"shard": s.Name}, a.registry)
			d.log = a.log.With("shard", s.Name)
		}
		d.faults = pgfault.NewWatch(d.registry)
		databases = append(databases, d)
	}
	if len(databases) > 1 {
		a.share = projector.NewShare(projector.DefaultConcurrency())
	}
	return databases, nil
}

// openDatabases connects to the databases. It fails if a database is not fit for this process, for
// example because migrations are pending. A shard that is unavailable now is checked as soon as it
// is available. purpose is the name of the serving pools, such as "tail".
func (a *App) openDatabases(ctx context.Context, purpose string) (err error) {
	looking, lookingCtx := errgroup.WithContext(ctx)
	for _, d := range a.databases {
		looking.Go(func() error { return a.divideConnections(lookingCtx, d) })
	}
	if err := looking.Wait(); err != nil {
		return err
	}
	var all []cluster.Candidate
	for _, d := range a.databases {
		if d.serving, err = a.pool(ctx, d, purpose, d.conns.Serving); err != nil {
			return err
		}
		if d.watching, err = a.pool(ctx, d, "watching", config.WatchingConns); err != nil {
			return err
		}
		if d.config.Name == "" {
			check := func() error {
				if err := a.checkSchema(ctx, d, a.cfg.Migrate); err != nil {
					return err
				}
				return checkRole(ctx, d)
			}
			if err := a.untilReached(ctx, d, check); err != nil {
				return err
			}
		}
		all = append(all, cluster.Candidate{Name: d.config.Name, Pool: d.serving})
	}
	if a.cfg.Sharded() && a.cfg.Migrate {
		if err := a.migrateShards(ctx, all); err != nil {
			return err
		}
	}
	a.cluster, err = cluster.Open(ctx, cluster.Config{
		Databases: all, Logger: a.log, Now: a.now, Guard: &a.identity,
		Check: func(ctx context.Context, i int) error {
			if err := a.checkPooler(ctx, a.databases[i]); err != nil {
				return err
			}
			if err := a.checkSchema(ctx, a.databases[i], false); err != nil {
				return err
			}
			return checkRole(ctx, a.databases[i])
		},
	})
	if err != nil {
		return err
	}
	versions := map[string]migrations.State{}
	for i, s := range a.cluster.Databases() {
		if s.Err() == nil {
			versions[s.Name] = a.databases[i].schema
		}
		a.databases[i].Database = s
		if s.Err() == nil {
			_ = a.databases[i].measureClock(ctx) // followClock tries again
		}
		a.databases[i].targets = outbound.NewTargets(a.databases[i].serving, a.cluster)
	}
	if uneven := migrations.Uneven(versions); uneven != "" {
		a.log.WarnContext(ctx, uneven)
	}
	a.stage("shards", a.cluster.Run)
	for _, d := range a.databases {
		d.progress = lag.NewProgress(d.watching, d.Held)
		a.stageOf(d, "watch of folding", d.progress.Run)
	}
	if a.cluster.Several() {
		a.stage("moves", a.cluster.CompleteMoves)
		a.stage("restored shards", a.cluster.SettleRestored)
		a.registerShards()
	}
	return nil
}

// migrateShards migrates the databases that are available. It fails if a database has another name
// than in the configuration, or belongs to another cluster.
func (a *App) migrateShards(ctx context.Context, all []cluster.Candidate) error {
	if err := cluster.Identify(ctx, all, true); err != nil {
		return err
	}
	for i, d := range a.databases {
		if all[i].Err != nil {
			continue
		}
		// Skip a database without a schema: it has not joined the cluster yet, and joining needs
		// more than migrations.
		n, err := migrations.Partitions(ctx, d.serving.Config().ConnConfig)
		if err == nil && n > 0 {
			err = a.checkPooler(ctx, d)
		}
		if err == nil && n > 0 {
			err = a.checkSchema(ctx, d, true)
		}
		if err != nil && !unreachable(err) {
			return fmt.Errorf("%s: %w", d.config.Label(), err)
		}
	}
	return nil
}

// unreachable reports whether err means that no connection could be opened.
func unreachable(err error) bool {
	_, ok := errors.AsType[*pgconn.ConnectError](err)
	return ok || errors.Is(err, context.DeadlineExceeded)
}

// registerShards registers the metrics of shards.
func (a *App) registerShards() {
	for _, d := range a.databases {
		metric.GaugeFunc(d.registry, "badged_shard_up", "1 while this process can reach the shard, else 0.", func() float64 {
			if d.Err() != nil {
				return 0
			}
			return 1
		})
		metric.GaugeFunc(d.registry, "badged_shard_partitions", "Partitions that the shard holds, as last known.", func() float64 { return float64(len(d.Held())) })
	}
	a.registry.MustRegister(awayPartitions{
		a.cluster, prometheus.NewDesc("badged_shard_partition_away", "1 for each partition that no reachable shard holds. Events for its users are refused.", []string{"partition"}, nil),
	})
	waiting := newHintMetrics(a.cluster)
	a.registry.MustRegister(waiting)
	a.stage("measure of hints", waiting.run)
	metric.GaugeFunc(a.registry, "badged_shard_maps_disagree", "1 while shards disagree about which shard holds a partition, else 0. Meanwhile the process uses the last valid map.", func() float64 {
		if a.cluster.Problem() != nil {
			return 1
		}
		return 0
	})
}

// awayPartitions is a collector of the partitions whose database is unavailable.
type awayPartitions struct {
	cluster *cluster.Cluster
	desc    *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c awayPartitions) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- c.desc }

// Collect implements prometheus.Collector.
func (c awayPartitions) Collect(metrics chan<- prometheus.Metric) {
	for _, p := range c.cluster.Away() {
		metrics <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, 1, fmt.Sprint(p))
	}
}

// watchDatabases adds the readiness checks of the databases and of their clocks.
func (a *App) watchDatabases() {
	a.checks = append(a.checks, obs.Check{Name: "postgres", Vital: true, Run: a.checkDatabases})
	a.openClocks()
}

// stageOf adds a stage that works on one database. If the database is a shard, the stage starts as
// soon as the shard is available.
func (a *App) stageOf(d *database, name string, run func(ctx context.Context) error) {
	if d.config.Name == "" {
		a.stage(name, run)
		return
	}
	a.stage(name+" of shard "+d.config.Name, func(ctx context.Context) error {
		select {
		case <-d.Ready():
			return run(ctx)
		case <-ctx.Done():
			return nil
		}
	})
}

// watchingLockTimeout limits how long statements of the watching pool wait for a lock.
// Readiness, revocations and the measurement of lag use this pool.
const watchingLockTimeout = time.Second

// leastFolding is the number of connections for folding that the pool keeps open even if they are
// idle.
const leastFolding = 3

// lockTimeout returns how long statements of a pool may wait for a lock; 0 means no limit. For the
// pool of publishers ("serving") it should be longer than 3 s: while a partition is split or moved,
// its publishers may have to wait for up to 3 s for a lock, the gate.
func (a *App) lockTimeout(purpose string) time.Duration {
	switch purpose {
	case "serving":
		return a.cfg.LockTimeout
	case "watching":
		return watchingLockTimeout
	}
	return 0
}

// pool opens a pool of at most maxConns connections. purpose becomes the application_name.
func (a *App) pool(ctx context.Context, d *database, purpose string, maxConns int32) (*pgxpool.Pool, error) {
	cfg, err := d.config.PoolConfig()
	if err != nil {
		return nil, err
	}
	cfg.MaxConns, cfg.MinConns = maxConns, min(cfg.MinConns, maxConns)
	if purpose == "folding" { // keep connections open, so that other clients cannot use up the connections of Postgres
		cfg.MinConns = min(maxConns, leastFolding)
	}
	if cfg.ConnConfig.RuntimeParams["application_name"] == "" {
		cfg.ConnConfig.RuntimeParams["application_name"] = "badged " + purpose
	}
	d.faults.Configure(cfg.ConnConfig)
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = 5 * time.Second
	}
	if cfg.ConnConfig.ValidateConnect == nil {
		// Refuse standbys: their tables lag behind, so this process would read outdated badges.
		cfg.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
	}
	a.identity.Configure(cfg.ConnConfig, d.config.Name) // check the identity of the server first: the timeline of a wrong server means nothing
	a.timelines.Configure(cfg.ConnConfig)
	var limits []pgsession.Setting
	if limit := a.lockTimeout(purpose); limit > 0 {
		limits = append(limits, pgsession.Setting{Name: "lock_timeout", Value: strconv.FormatInt(limit.Milliseconds(), 10)})
	}
	projector.ConfigurePool(cfg, limits...) // call ConfigurePool last, so that its settings are applied before the checks above run
	if a.traces != nil {
		cfg.ConnConfig.Tracer = a.traces
	}
	p, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to the %s: %w", d.config.Label(), err)
	}
	a.pools = append(a.pools, p)
	obs.RegisterPool(d.registry, purpose, p)
	return p, nil
}

// checkPooler fails if the connection goes through a pooler that is not supported.
func (a *App) checkPooler(ctx context.Context, d *database) error {
	cfg, err := d.config.PoolConfig()
	if err != nil {
		return err
	}
	_, err = pooler.Find(ctx, cfg.ConnConfig)
	return err
}

// checkSchema fails if migrations are pending. If migrate is true, it applies them first.
func (a *App) checkSchema(ctx context.Context, d *database, migrate bool) error {
	conn := d.serving.Config().ConnConfig
	if migrate {
		applied, err := migrations.Up(ctx, migrations.Config{Conn: conn, Retrying: func(err error, wait time.Duration) {
			d.log.WarnContext(ctx, "a migration could not get its locks and was rolled back; trying again", "wait", wait, "error", err)
		}})
		if err != nil {
			return err
		}
		for _, m := range applied {
			d.log.InfoContext(ctx, "migrated", "migration", m.Name)
		}
	}
	state, err := migrations.StateOf(ctx, d.serving)
	if err != nil {
		return err
	}
	d.schema = state
	if lacks := state.Lacks(); lacks != "" {
		return fmt.Errorf("%s; run `badged migrate up`, or serve with --migrate", lacks)
	}
	return nil
}

// mayFoldSQL returns the role of the session, and whether the role may fold all partitions.
const mayFoldSQL = `SELECT current_user, NOT EXISTS (
    SELECT FROM pg_class
    WHERE relnamespace = 'badged'::regnamespace AND relname ~ '^events_p[0-9]+_offsets$'
      AND NOT has_column_privilege(oid, 'folded', 'UPDATE')
)`

// checkRole fails if the role of the sessions may not fold. Otherwise the process would own
// partitions that it cannot fold, and no other process could.
func checkRole(ctx context.Context, d *database) error {
	var role string
	var mayFold bool
	if err := d.serving.QueryRow(ctx, mayFoldSQL).Scan(&role, &mayFold); err != nil {
		return fmt.Errorf("check the role: %w", err)
	}
	if !mayFold {
		return fmt.Errorf("the role %s may not write badges: connect as a role of kind server, which `badged migrate grant server %[1]s` makes it", role)
	}
	return nil
}

// appendTo returns a function that appends to a database. Small appends that arrive together
// share a transaction. If possible, the projector of this process folds the events in this
// transaction.
func (a *App) appendTo(s *cluster.Database) events.Append {
	var d *database
	for _, other := range a.databases {
		if other.Database == s {
			d = other
		}
	}
	small := groupcommit.New(d.Log, d.Log.AppendOwn, groupcommit.SmallAppend, projector.DefaultConcurrency())
	small.FoldBy(func(ctx context.Context, evs ...events.Event) (events.Receipt, error) {
		if d.projector != nil {
			return d.projector.Append(ctx, evs...)
		}
		return d.Log.AppendOwn(ctx, evs...)
	})
	parts := groupcommit.New(d.Log, d.Log.AppendOwn, largePart, 1)
	return func(ctx context.Context, evs ...events.Event) (events.Receipt, error) {
		group := small
		if len(a.databases) > 1 && len(evs) > largeCall/len(a.databases) {
			group = parts
		}
		receipt, err := group.Append(ctx, evs...)
		if err == nil {
			d.faults.Written()
		}
		return receipt, err
	}
}

const (
	// With several databases, a call that appends events is divided into parts, one for each
	// database. A part of at most largeCall / (number of databases) events may be folded in the
	// transaction that appends it. A larger part is only appended. The projector folds the events
	// of this part later, with the events of other calls.
	largeCall = 500
	// largePart is a limit for parts that are too large to be folded in the transaction that
	// appends them (see largeCall). Such a part shares its transaction with parts of other calls if
	// it has at most largePart events: the commit of a part costs as much as the commit of a whole
	// call.
	largePart = 1000
)

// openProjector adds the projector of a database, and the stages that verify users and expire
// conversations.
func (a *App) openProjector(ctx context.Context, d *database) error {
	folding, err := a.pool(ctx, d, "folding", d.conns.Folding)
	if err != nil {
		return err
	}
	bus := a.bus
	var trace func(projector.TracedBatch) []string
	if a.traces != nil {
		bus, trace = tracedBus{bus, a.traces}, a.traces.fold
	}
	d.projector, err = projector.New(projector.Config{
		Pool: folding, Log: d.Log, Bus: bus, Held: d.Held, HeldChanged: a.cluster.Changed, Trace: trace,
		Logger: d.log, Metrics: projector.NewMetrics(d.registry),
		CacheBytes:  a.cfg.CacheMiB << 20, // for the partitions of all shards together
		DedupWindow: a.cfg.DedupWindow, Share: a.share,
		Folded: func(b projector.FoldedBatch) { d.folded(b) },
	})
	if err != nil {
		return err
	}
	a.publisher.projectors = append(a.publisher.projectors, d.projector)
	a.stageOf(d, "projector", d.projector.Run)
	a.stageOf(d, "measure of open transactions", obs.NewOpenTransactions(d.registry, d.watching).Run)
	if err := a.openVerifying(d, folding, d.projector); err != nil {
		return err
	}
	return a.openExpiry(d, folding)
}

func (a *App) databaseOf(userID string) (*database, error) {
	i, err := a.cluster.Place(userID)
	if err != nil {
		return nil, err
	}
	return a.databases[i], nil
}

// byName returns the databases sorted by name. The first of them stores the data that concerns all
// databases. So every process chooses the same database for this data, even if the configurations
// list the databases in different orders.
func (a *App) byName() []*database {
	return slices.SortedFunc(slices.Values(a.databases), func(a, b *database) int { return cmp.Compare(a.config.Name, b.config.Name) })
}

// targetsOf returns access to the devices and webhooks in the database of a user.
func (a *App) targetsOf(userID string) (*outbound.Targets, error) {
	d, err := a.databaseOf(userID)
	if err != nil {
		return nil, err
	}
	return d.targets, nil
}

// waiting measures, for backpressure, how far folding is behind in each partition. If a database
// cannot be measured, the result does not contain its partitions, which then count as not behind:
// publishing to this database fails anyway.
func (a *App) waiting(ctx context.Context) (map[int]lag.Waiting, error) {
	parts := make([]map[int]lag.Waiting, len(a.databases))
	err := a.cluster.AtOnce(func(i int, s *cluster.Database) (err error) {
		if held := s.Held(); len(held) > 0 {
			parts[i], err = lag.WaitingIn(ctx, a.databases[i].watching, held)
		}
		return err
	})
	all := map[int]lag.Waiting{}
	for _, part := range parts {
		maps.Copy(all, part)
	}
	_, partial := errors.AsType[*cluster.PartialFailure](err)
	switch {
	case cluster.OnlyAway(err):
		err = nil
	case partial && ctx.Err() == nil:
		a.log.WarnContext(ctx, "cannot measure the lag of all databases", "error", err)
		err = nil
	}
	return all, err
}

// explainers explains the badge of a user from the log in the database of the user.
type explainers struct {
	byDatabase []*replay.Explainer
	cluster    *cluster.Cluster
}

func (a *App) explainer() explainers {
	e := explainers{cluster: a.cluster}
	for _, d := range a.databases {
		e.byDatabase = append(e.byDatabase, replay.NewExplainer(d.serving, d.Log))
	}
	return e
}

// Explain implements httpapi.Explainer.
func (e explainers) Explain(ctx context.Context, userID string, q replay.Question) (replay.Explanation, error) {
	i, err := e.cluster.Place(userID)
	if err != nil {
		return replay.Explanation{}, err
	}
	return e.byDatabase[i].Explain(ctx, userID, q)
}

// checkDatabases is the readiness check of Postgres.
func (a *App) checkDatabases(ctx context.Context) error {
	err := a.checkEach(func(d *database) error {
		if d.Err() != nil {
			return errors.New(faultOfRead(d.Err()).String())
		}
		return checkPostgres(ctx, d.watching, d.faults)
	})
	if away := a.cluster.Away(); len(away) > 0 {
		text := "partitions of unavailable shards: " + cluster.List(away)
		if err != nil {
			text = err.Error() + "; " + text
		}
		if err == nil || obs.IsImpaired(err) {
			return obs.Impaired(text)
		}
		return errors.New(text)
	}
	return err
}

// checkEach runs a check for all databases concurrently. If the check fails for some databases and
// succeeds for others, the process is only impaired, and stays ready.
func (a *App) checkEach(check func(d *database) error) error {
	errs := make([]error, len(a.databases))
	var g sync.WaitGroup
	for i, d := range a.databases {
		g.Go(func() { errs[i] = check(d) })
	}
	g.Wait()
	var texts []string
	serving := 0
	for i, err := range errs {
		if err != nil {
			texts = append(texts, a.databases[i].prefix()+err.Error())
		}
		if err == nil || obs.IsImpaired(err) {
			serving++
		}
	}
	switch text := strings.Join(texts, "; "); {
	case text == "":
		return nil
	case serving > 0:
		return obs.Impaired(text)
	default:
		return errors.New(text)
	}
}

// prefix returns the beginning of a message about the database: its label, or "" if it is the only
// database.
func (d *database) prefix() string {
	if d.config.Name == "" {
		return ""
	}
	return d.Label() + ": "
}
