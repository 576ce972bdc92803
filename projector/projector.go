// Package projector folds the event log into badges: how many messages each user has not read,
// by conversation and in total.
//
// A [Projector] owns partitions and folds their events in batches. One transaction per batch
// moves the position of the partition and writes every changed row. Package badges reads the
// numbers. The fold itself is in internal/fold/badge, its tables are in internal/fold/store.
//
// The package does not know the readers of badges: gateways, HTTP, and the packages for
// operators. ADR 54 explains appends that fold, ADR 20 the cache, and ADR 41 epochs.
package projector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/defaults"
	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/fold/lag"
	"github.com/badged/badged/internal/fold/logread"
	"github.com/badged/badged/internal/fold/store"
	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/internal/pg/dbclock"
	"github.com/badged/badged/internal/pg/pgsession"
	"github.com/badged/badged/pubsub"
)

// Config configures a Projector. Pool, Log and Bus are required.
type Config struct {
	// Pool connects to the database. Call ConfigurePool on its configuration.
	Pool *pgxpool.Pool
	Log  *events.Log
	// Bus receives every update after the commit of its batch.
	Bus pubsub.Bus
	// Held returns the partitions that this database holds, in ascending order. It is required
	// if there are several databases. It must not block. Default: all partitions.
	Held func() []int
	// HeldChanged returns a channel that is closed when the result of Held may have changed.
	// Default: a channel that is closed when partitions were split.
	HeldChanged func() <-chan struct{}
	// Logger defaults to a logger that discards everything.
	Logger *slog.Logger
	// Metrics defaults to metrics that are not registered.
	Metrics *Metrics

	// PollInterval is how often the projector looks for events that were appended without
	// waking it, for example by plain SQL. A poll skips a partition if Append has folded in it
	// since the last poll. Default 100ms.
	PollInterval time.Duration
	// MaxBatch is the maximum number of events folded in one transaction. Default 5,000.
	MaxBatch int
	// CacheBytes is the approximate memory, in bytes, for cached users and rooms, the keys of
	// recent events, and the filters of older keys. It is divided evenly among all partitions.
	// Default 256 MiB.
	CacheBytes int
	// Concurrency is how many partitions are folded at once, each on its own connection.
	// Default: the number of processors, at least 2 and at most 4. Beyond that, batches would
	// compete with each other and with requests.
	Concurrency int
	// Share, if not nil, limits how many partitions this process folds at once, in total for
	// the projectors of several databases.
	Share *Share
	// OwnershipInterval is how often the projector counts the other projectors, and acquires
	// or releases partitions until it has its fair share. An owner whose session is silent for
	// three intervals loses its partitions. Default 1s.
	OwnershipInterval time.Duration
	// DedupWindow is the minimum time for which event keys are stored; the maximum is 1.5 times as
	// long. Default 14 days.
	DedupWindow time.Duration
	// MaintenanceInterval is how often the projector checks whether to begin a generation of
	// event keys and to extend the log. Default 1m.
	MaintenanceInterval time.Duration

	// Trace is called with each batch that has traced events. For each of these events, it
	// returns the trace context to publish with the updates, "" for none. It must not block.
	// Default: no tracing.
	Trace func(TracedBatch) []string
	// Folded is called with each batch after its commit. The batches of a partition come in
	// the order of their positions. It must neither block nor change its argument. Default: no
	// call.
	Folded func(FoldedBatch)
}

// FoldedBatch describes a committed batch, for consumers that follow the log.
type FoldedBatch struct {
	Partition int
	// From is the position before the batch, To the position after it.
	From, To events.Position
	// Users and Rooms are the ids of users and rooms in which clients can see a change. Users
	// does not have members whose numbers changed only because their room changed.
	Users, Rooms []string
	// Notifying has the events of the batch whose message has a notification.
	Notifying []*events.Event
}

// Projector folds the partitions that it owns. Any number of projectors may run on one
// database; each partition has one owner at a time. If a partition had two owners by mistake,
// the fence in the transaction of each batch would keep the counts correct.
type Projector struct {
	cfg        Config
	ran        atomic.Bool
	log        *slog.Logger
	metrics    *Metrics
	deadLog    *rareLog
	leapLog    *rareLog
	partitions []*partition
	// split has the partitions created by splits, by number. splitMu guards it.
	split   map[int]*partition
	splitMu sync.Mutex
	// silence is how long the session of an owner may be silent. After that, the owner loses
	// its partitions.
	silence time.Duration
	// slots limits how many partitions are folded at once.
	slots chan struct{}
	// connections has the database connections of batches.
	connections *connections
	// appending has the database connections of appends that fold.
	appending *connections
	// open records when the partitions first saw each open transaction.
	open logread.Watch
	// foldLockTimeout is the constant foldLockTimeout, except in tests.
	foldLockTimeout time.Duration
	// clock returns the time of the database.
	clock dbclock.Clock
	// restartTold is when a restart of Postgres was last logged, in Unix nanoseconds.
	restartTold atomic.Int64
	// updates is the queue of updates to publish on the bus.
	updates chan store.Updates
	// merges has a token if event keys should be merged.
	merges chan struct{}
}

// New returns a projector, which does nothing until Run.
func New(cfg Config) (*Projector, error) {
	if cfg.Pool == nil || cfg.Log == nil || cfg.Bus == nil {
		return nil, errors.New("projector: Pool, Log and Bus are required")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics(nil)
	}
	if cfg.Held == nil {
		cfg.Held = func() []int { return cfg.Log.Layout().Living() }
	}
	if cfg.HeldChanged == nil {
		cfg.HeldChanged = cfg.Log.Changed
	}
	if cfg.Folded == nil {
		cfg.Folded = func(FoldedBatch) {}
	}
	if err := cmp.Or(
		defaults.Set("PollInterval", &cfg.PollInterval, 100*time.Millisecond),
		defaults.Set("MaxBatch", &cfg.MaxBatch, 5000),
		defaults.Set("CacheBytes", &cfg.CacheBytes, 256<<20),
		defaults.Set("Concurrency", &cfg.Concurrency, DefaultConcurrency()),
		defaults.Set("OwnershipInterval", &cfg.OwnershipInterval, time.Second),
		defaults.Set("DedupWindow", &cfg.DedupWindow, 14*24*time.Hour),
		defaults.Set("MaintenanceInterval", &cfg.MaintenanceInterval, time.Minute),
	); err != nil {
		return nil, fmt.Errorf("projector: %w", err)
	}
	p := &Projector{
		cfg:             cfg,
		log:             cfg.Logger,
		metrics:         cfg.Metrics,
		deadLog:         newDeadLog(cfg.Logger),
		leapLog:         newLeapLog(cfg.Logger),
		silence:         silentIntervals * cfg.OwnershipInterval,
		slots:           make(chan struct{}, cfg.Concurrency),
		connections:     newConnections(cfg.Pool, 0),
		appending:       newConnections(cfg.Pool, lockPatience),
		updates:         make(chan store.Updates, 256),
		merges:          make(chan struct{}, 1),
		split:           map[int]*partition{},
		foldLockTimeout: foldLockTimeout,
		open:            logread.Watch{Patience: openPatience},
	}
	for i := range cfg.Log.Partitions() {
		p.partitions = append(p.partitions, newPartition(i, p))
	}
	return p, nil
}

// partition returns a partition by its number.
func (p *Projector) partition(id int) *partition {
	if id < len(p.partitions) {
		return p.partitions[id]
	}
	p.splitMu.Lock()
	defer p.splitMu.Unlock()
	if p.split[id] == nil {
		p.split[id] = newPartition(id, p)
	}
	return p.split[id]
}

// DefaultConcurrency returns the default of Config.Concurrency.
func DefaultConcurrency() int { return min(max(2, runtime.GOMAXPROCS(0)), 4) }

// openPatience is how long batches wait for an open transaction before they fold later events:
// see [logread.Watch].
const openPatience = 20 * time.Millisecond

// pausedBatch is how long a session of the pool may be idle inside a transaction before
// Postgres ends it. Without this limit, a process that hangs, or whose host has vanished,
// could hold locks forever.
const pausedBatch = 3 * time.Second

// ConfigurePool configures the sessions of a pool for the projector. All queries of the projector
// look up rows by key. Without statistics, as on new tables, the planner would choose sequential
// scans, hash joins or merge joins, so ConfigurePool disables these. It also disables memoize nodes
// and bitmap scans: most look-ups are for different rows, so caching results, or sorting rows by
// page, costs more than it saves. Settings of the database or of the role have no effect in these
// sessions. `others` are further settings.
func ConfigurePool(cfg *pgxpool.Config, others ...pgsession.Setting) {
	settings := append([]pgsession.Setting{
		{Name: "idle_in_transaction_session_timeout", Value: strconv.FormatInt(pausedBatch.Milliseconds(), 10)},
		{Name: "plan_cache_mode", Value: "force_generic_plan"},
	}, others...)
	for _, method := range []string{"seqscan", "bitmapscan", "hashjoin", "mergejoin", "memoize"} {
		settings = append(settings, pgsession.Setting{Name: "enable_" + method, Value: "off"})
	}
	pgsession.Configure(cfg.ConnConfig, settings...)
	pgsession.CheckIdle(cfg)
}

// Wake tells the projector that a partition has new events. It does not block and is safe for
// concurrent use. It has no effect if the projector does not own the partition.
func (p *Projector) Wake(partition int) {
	if partition >= 0 && partition < eventlog.PartitionNumbers {
		p.partition(partition).wake()
	}
}

// Run folds until ctx is done. Then it finishes the current batches, publishes their updates,
// and returns nil. It returns an error if it was called before.
func (p *Projector) Run(ctx context.Context) error {
	if p.ran.Swap(true) {
		return errors.New("projector: Run was called before; make another with New")
	}
	// Publishing ends after the partitions, so that their last updates are published too.
	var publishing sync.WaitGroup
	lasting := context.WithoutCancel(ctx)
	publishing.Go(func() { p.publish(lasting) })

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.cfg.Bus.Wakes(ctx, p.Wake) })
	g.Go(func() error {
		return wait.Every(ctx, p.cfg.PollInterval, (&poller{projector: p, database: p.cfg.Pool}).poll)
	})
	g.Go(func() error { return wait.Every(ctx, lagInterval, p.measure) })
	g.Go(func() error { return p.maintain(ctx) })
	g.Go(func() error { return p.indexLog(ctx) })
	g.Go(func() error { return p.runOwnership(ctx) })
	g.Go(func() error { return wait.Every(ctx, p.cfg.OwnershipInterval, p.follow) })
	err := g.Wait()
	p.release()
	close(p.updates)
	publishing.Wait()
	if err != nil {
		return fmt.Errorf("projector: %w", err)
	}
	return nil
}

// release returns to the pool the connections that batches have stored.
func (p *Projector) release() {
	p.connections.release()
	p.appending.release()
}

// publish publishes committed updates on the bus, in the order of the commits. It runs in a
// goroutine of its own: the bus may be slow or fail, which must not delay folding. Gateways
// detect updates that they have missed.
func (p *Projector) publish(ctx context.Context) {
	for updates := range p.updates {
		if err := p.cfg.Bus.Publish(ctx, updates.Users, updates.Rooms); err != nil {
			p.metrics.updatesLost.Add(float64(updates.Len()))
			p.log.WarnContext(ctx, "cannot publish updates; reconciliation will deliver them", "updates", updates.Len(), "error", err)
		}
	}
}

// Notify queues updates for the bus, after the updates of earlier batches. If the queue is full,
// it drops them, and reconciliation delivers them later. It does not block, and is safe for
// concurrent use while Run runs.
func (p *Projector) Notify(updates []pubsub.Update) { p.notify(store.Updates{Users: updates}) }

func (p *Projector) notify(updates store.Updates) {
	if updates.Len() == 0 {
		return
	}
	select {
	case p.updates <- updates:
	default:
		p.metrics.updatesLost.Add(float64(updates.Len()))
	}
}

// OwnedPartitions returns the partitions that this projector folds now.
func (p *Projector) OwnedPartitions() []int {
	owned := make([]int, 0, len(p.partitions))
	for _, id := range p.cfg.Held() {
		if p.partition(id).owned.Load() {
			owned = append(owned, id)
		}
	}
	return owned
}

// measure updates the metrics of the lag and of the dead letters.
func (p *Projector) measure(ctx context.Context) {
	p.measureClock(ctx)
	measuring, cancel := context.WithTimeout(ctx, lagPatience)
	lags, err := lag.Measure(measuring, p.cfg.Pool, p.OwnedPartitions(), lagLimit)
	cancel()
	var waiting float64
	if err == nil {
		// Do not count dead letters of partitions that are being copied to this database.
		err = p.cfg.Pool.QueryRow(ctx, `SELECT count(*) FROM (
	SELECT FROM badged.dead_letters WHERE partition_id IS NULL OR partition_id IN (SELECT partition_id FROM badged.partitions) LIMIT $1) AS counted`, lettersLimit).Scan(&waiting)
	}
	if err != nil {
		if ctx.Err() == nil {
			p.log.WarnContext(ctx, "cannot measure the lag and the dead letters that wait", "error", err)
		}
		return
	}
	p.metrics.deadLettersWaiting.Set(waiting)
	p.metrics.lagEvents.Reset() // some partitions may have a new owner
	p.metrics.lagSeconds.Reset()
	for _, l := range lags {
		label := strconv.Itoa(l.Partition)
		p.metrics.lagEvents.WithLabelValues(label).Set(float64(l.Events))
		p.metrics.lagSeconds.WithLabelValues(label).Set(l.Age.Seconds())
	}
}

// measureClock reads the clock of the database. Appends that fold compute the time from the last
// successful reading, without a query.
func (p *Projector) measureClock(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lagInterval)
	defer cancel()
	if err := p.clock.Measure(ctx, func(ctx context.Context) (time.Time, error) { return pgsession.Now(ctx, p.cfg.Pool) }); err != nil && ctx.Err() == nil {
		p.log.WarnContext(ctx, "cannot measure the clock of the database", "error", err)
	}
}

// Measuring the lag reads the log, so it is done rarely and reads a limited number of rows.
const (
	lagInterval = 5 * time.Second
	lagLimit    = 100_000
	// lettersLimit is the maximum number of dead letters to count.
	lettersLimit = 10_000
	// lagPatience limits the duration of a measurement, which blocks while another session
	// locks a partition.
	lagPatience = 10 * time.Second
)
