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

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/appending"
	"github.com/badged/badged/internal/config"
	"github.com/badged/badged/internal/dbclock"
	"github.com/badged/badged/internal/grouping"
	"github.com/badged/badged/internal/httpapi"
	"github.com/badged/badged/internal/obs"
	"github.com/badged/badged/internal/pgfault"
	"github.com/badged/badged/internal/pgsession"
	"github.com/badged/badged/internal/pooler"
	"github.com/badged/badged/internal/shards"
	"github.com/badged/badged/migrations"
	"github.com/badged/badged/projector"
	"github.com/badged/badged/projector/lag"
	"github.com/badged/badged/projector/outbound"
	"github.com/badged/badged/projector/replay"
)

// database is what this process has of one database: the only one, or a shard.
type database struct {
	*shards.Shard
	config config.Shard
	// schema is what its migrations were when it was checked last.
	schema migrations.State
	// registry and log say which shard they are about, if there are several.
	registry prometheus.Registerer
	log      *slog.Logger
	faults   *pgfault.Watch
	// progress says whether its partitions are folded.
	progress *lag.Progress
	// conns are the sizes of its pools.
	conns config.Connections
	// serving is the pool of requests: a separate one keeps them from delaying the fold.
	serving *pgxpool.Pool
	// watching is the pool of what must not wait behind requests.
	watching *pgxpool.Pool
	targets  *outbound.Targets
	clock    dbclock.Clock
	// projector is nil if only other processes fold.
	projector *projector.Projector
	// folded is called with each of its batches.
	folded func(projector.FoldedBatch)
}

// nameDatabases returns the databases of the configuration, without connecting.
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

// openDatabases connects to the databases, for a purpose, and fails if they cannot be
// served. A shard that cannot be reached is checked when it is back.
func (a *App) openDatabases(ctx context.Context, purpose string) (err error) {
	var all []shards.Database
	for _, d := range a.databases {
		if d.config.Name == "" {
			if err := a.awaitDatabase(ctx, d); err != nil {
				return err
			}
			if err := a.checkPooler(ctx, d); err != nil {
				return err
			}
		}
		if err := a.divideConnections(ctx, d); err != nil {
			return err
		}
		if d.serving, err = a.pool(ctx, d, purpose, d.conns.Serving); err != nil {
			return err
		}
		if d.watching, err = a.pool(ctx, d, "watching", config.WatchingConns); err != nil {
			return err
		}
		if d.config.Name == "" {
			if err := a.checkSchema(ctx, d, a.cfg.Migrate); err != nil {
				return err
			}
		}
		all = append(all, shards.Database{Name: d.config.Name, Pool: d.serving})
	}
	if a.cfg.Sharded() && a.cfg.Migrate {
		if err := a.migrateShards(ctx, all); err != nil {
			return err
		}
	}
	a.cluster, err = shards.Open(ctx, shards.Config{
		Databases: all, Logger: a.log, Now: a.now, Guard: &a.identity,
		Check: func(ctx context.Context, i int) error {
			if err := a.checkPooler(ctx, a.databases[i]); err != nil {
				return err
			}
			return a.checkSchema(ctx, a.databases[i], false)
		},
	})
	if err != nil {
		return err
	}
	versions := map[string]migrations.State{}
	for i, s := range a.cluster.Shards() {
		if s.Err() == nil {
			versions[s.Name] = a.databases[i].schema
		}
		a.databases[i].Shard = s
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
	if a.cluster.Sharded() {
		a.stage("moves", a.cluster.CompleteMoves)
		a.stage("restored shards", a.cluster.SettleRestored)
		a.registerShards()
	}
	return nil
}

// migrateShards migrates the shards that can be reached, unless one of them is another than
// its name says.
func (a *App) migrateShards(ctx context.Context, all []shards.Database) error {
	if err := shards.Identify(ctx, all, true); err != nil {
		return err
	}
	for i, d := range a.databases {
		if all[i].Err != nil {
			continue
		}
		// What has no schema yet is to join the cluster, which needs more than that.
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

// unreachable reports whether an error is that there was no connection.
func unreachable(err error) bool {
	_, ok := errors.AsType[*pgconn.ConnectError](err)
	return ok || errors.Is(err, context.DeadlineExceeded)
}

// registerShards registers the metrics of shards.
func (a *App) registerShards() {
	for _, d := range a.databases {
		auto := promauto.With(d.registry)
		auto.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "badged", Subsystem: "shard", Name: "up",
			Help: "1 while this process reaches the shard, else 0.",
		}, func() float64 {
			if d.Err() != nil {
				return 0
			}
			return 1
		})
		auto.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "badged", Subsystem: "shard", Name: "partitions",
			Help: "Partitions that the shard holds, as last known.",
		}, func() float64 { return float64(len(d.Held())) })
	}
	a.registry.MustRegister(awayPartitions{
		a.cluster, prometheus.NewDesc("badged_shard_partition_away", "1 for each partition that no reachable shard holds: its users' events are refused.", []string{"partition"}, nil),
	})
	waiting := newWaitingMessages(a.cluster)
	a.registry.MustRegister(waiting)
	a.stage("measure of messages that wait for shards", waiting.run)
	promauto.With(a.registry).NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "badged", Subsystem: "shard", Name: "maps_disagree",
		Help: "1 while shards disagree on which holds a partition, and the last map stays in use, else 0.",
	}, func() float64 {
		if a.cluster.Problem() != nil {
			return 1
		}
		return 0
	})
}

// awayPartitions collects the partitions that are away.
type awayPartitions struct {
	cluster *shards.Cluster
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

// watchDatabases adds the checks of the databases to readiness.
func (a *App) watchDatabases() {
	a.checks = append(a.checks, obs.Check{Name: "postgres", Vital: true, Run: a.checkDatabases})
	a.openClocks()
}

// stageOf adds a stage that works on one database, once that was reached.
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

// watchingLockTimeout is how long statements wait for a lock that readiness, revocations and
// the lag need.
const watchingLockTimeout = time.Second

// leastFolding is how many connections for folding are kept open.
const leastFolding = 3

// lockTimeout returns how long statements of a pool wait for a lock, 0 for no limit.
// Publishers wait for the gate of a partition that is split or moved, 3s at most.
func (a *App) lockTimeout(purpose string) time.Duration {
	switch purpose {
	case "serving":
		return a.cfg.LockTimeout
	case "watching":
		return watchingLockTimeout
	}
	return 0
}

// pool opens a pool of at most maxConns connections.
func (a *App) pool(ctx context.Context, d *database, purpose string, maxConns int32) (*pgxpool.Pool, error) {
	cfg, err := d.config.PoolConfig()
	if err != nil {
		return nil, err
	}
	cfg.MaxConns, cfg.MinConns = maxConns, min(cfg.MinConns, maxConns)
	if purpose == "folding" { // before others take what there is
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
		// A standby lags: clients would be compared with old badges.
		cfg.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
	}
	a.identity.Configure(cfg.ConnConfig, d.config.Name) // first: the timeline of another server says nothing
	a.timelines.Configure(cfg.ConnConfig)
	var limits []pgsession.Setting
	if most := a.lockTimeout(purpose); most > 0 {
		limits = append(limits, pgsession.Setting{Name: "lock_timeout", Value: strconv.FormatInt(most.Milliseconds(), 10)})
	}
	projector.ConfigurePool(cfg, limits...) // last: settings come before checks
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

// checkPooler fails if the database is behind an unsupported pooler.
func (a *App) checkPooler(ctx context.Context, d *database) error {
	cfg, err := d.config.PoolConfig()
	if err != nil {
		return err
	}
	_, err = pooler.Find(ctx, cfg.ConnConfig)
	return err
}

// checkSchema migrates if so asked, and fails if migrations are pending.
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

// appendTo returns what appends to a database: small appends share a transaction, which
// may fold them too where the projector of this process can.
func (a *App) appendTo(s *shards.Shard) events.Append {
	var d *database
	for _, other := range a.databases {
		if other.Shard == s {
			d = other
		}
	}
	small := grouping.New(d.Log, appending.To(d.Log), grouping.SmallAppend, projector.DefaultConcurrency())
	small.FoldBy(func(ctx context.Context, evs ...events.Event) (events.Receipt, error) {
		if d.projector != nil {
			return d.projector.Append(ctx, evs...)
		}
		return appending.To(d.Log)(ctx, evs...)
	})
	parts := grouping.New(d.Log, appending.To(d.Log), largePart, 1)
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
	// largeCall is the most events of a call that are folded where they are appended. Of
	// a larger one, each of several databases gets a part; the loops fold more of them at
	// once than the part has.
	largeCall = 500
	// largePart is the most events of such a part that are appended with other parts: a
	// commit for each part costs as much as for the whole call.
	largePart = 1000
)

// openProjector adds the projector of a database, and what goes with it.
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
		CacheBytes:  a.cfg.CacheMiB << 20, // of all partitions, wherever they are
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

// databaseOf returns the database of a user.
func (a *App) databaseOf(userID string) (*database, error) {
	i, err := a.cluster.Place(userID)
	if err != nil {
		return nil, err
	}
	return a.databases[i], nil
}

// byName returns the databases by the names of their shards. The first one has what
// counts for all shards: every process agrees on it, in whichever order it names them.
func (a *App) byName() []*database {
	return slices.SortedFunc(slices.Values(a.databases), func(a, b *database) int { return cmp.Compare(a.config.Name, b.config.Name) })
}

// trail is the audit trail of what concerns no user: that of the first of the databases
// that is not away. It implements admin.DB.
type trail struct{ databases []*database }

func (t trail) pool() *pgxpool.Pool {
	for _, d := range t.databases {
		if d.Err() == nil {
			return d.serving
		}
	}
	return t.databases[0].serving
}

// Exec implements admin.DB.
func (t trail) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return t.pool().Exec(ctx, sql, args...)
}

// Query implements admin.DB.
func (t trail) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return t.pool().Query(ctx, sql, args...)
}

// QueryRow implements admin.DB.
func (t trail) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return t.pool().QueryRow(ctx, sql, args...)
}

// targetsOf returns the devices of the database of a user.
func (a *App) targetsOf(userID string) (*outbound.Targets, error) {
	d, err := a.databaseOf(userID)
	if err != nil {
		return nil, err
	}
	return d.targets, nil
}

// waiting measures how far folding is behind, for backpressure. What cannot be measured
// is not behind: its publishers are refused for another reason.
func (a *App) waiting(ctx context.Context) (map[int]lag.Waiting, error) {
	if !a.cluster.Sharded() {
		return lag.WaitingIn(ctx, a.databases[0].watching, a.databases[0].Held())
	}
	parts := make([]map[int]lag.Waiting, len(a.databases))
	errs := make([]error, len(a.databases))
	var g sync.WaitGroup
	for i, d := range a.databases {
		held := d.Held()
		if d.Err() != nil || len(held) == 0 {
			continue
		}
		g.Go(func() {
			parts[i], errs[i] = lag.WaitingIn(ctx, d.watching, held)
		})
	}
	g.Wait()
	all := map[int]lag.Waiting{}
	for i, err := range errs {
		maps.Copy(all, parts[i])
		if err != nil && ctx.Err() == nil {
			a.databases[i].log.WarnContext(ctx, "cannot measure the lag", "error", err)
		}
	}
	return all, nil
}

// explainer explains badges from the log of their users' database.
func (a *App) explainer() httpapi.Explainer {
	if !a.cluster.Sharded() {
		return replay.NewExplainer(a.databases[0].serving, a.databases[0].Log)
	}
	e := explainers{cluster: a.cluster}
	for _, d := range a.databases {
		e.of = append(e.of, replay.NewExplainer(d.serving, d.Log))
	}
	return e
}

type explainers struct {
	of      []*replay.Explainer
	cluster *shards.Cluster
}

// Explain implements httpapi.Explainer.
func (e explainers) Explain(ctx context.Context, userID string, q replay.Question) (replay.Explanation, error) {
	i, err := e.cluster.Place(userID)
	if err != nil {
		return replay.Explanation{}, err
	}
	return e.of[i].Explain(ctx, userID, q)
}

// checkDatabases is the readiness check of Postgres. A shard that is away is only an
// impairment while there is another.
func (a *App) checkDatabases(ctx context.Context) error {
	if !a.cluster.Sharded() {
		return checkPostgres(ctx, a.databases[0].watching, a.databases[0].faults)
	}
	errs := make([]error, len(a.databases))
	var g sync.WaitGroup
	for i, d := range a.databases {
		g.Go(func() {
			if d.Err() != nil {
				errs[i] = errors.New(faultOfRead(d.Err()).String())
			} else {
				errs[i] = checkPostgres(ctx, d.watching, d.faults)
			}
		})
	}
	g.Wait()
	var texts []string
	unread := 0
	for i, err := range errs {
		if err == nil {
			continue
		}
		texts = append(texts, fmt.Sprintf("shard %s: %v", a.databases[i].config.Name, err))
		if !obs.IsImpaired(err) {
			unread++
		}
	}
	if away := a.cluster.Away(); len(away) > 0 {
		texts = append(texts, "partitions that are away: "+shards.List(away))
	}
	text := strings.Join(texts, "; ")
	switch {
	case text == "":
		return nil
	case unread < len(a.databases):
		return obs.Impaired(text)
	}
	return errors.New(text)
}
