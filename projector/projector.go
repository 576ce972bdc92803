// Package projector folds the event log into badges: how many messages each
// user has not read, by conversation and in total.
//
// A [Projector] owns partitions and folds them in batches. One transaction per
// batch moves the position of the partition and writes every row that changed.
// Package badges reads the numbers. The other packages below it are for operators and
// each have one subject, such as replay, which verifies, heals and explains badges from
// the log. The fold is in internal/badge and the tables in internal/store.
//
// It does not know who reads badges: no gateway, no HTTP, and none of the packages for
// operators. ADR 54 explains appends that fold, ADR 20 the cache, ADR 41 epochs.
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

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/dbclock"
	"github.com/badged/badged/internal/defaults"
	"github.com/badged/badged/internal/eventlog"
	"github.com/badged/badged/internal/pgsession"
	"github.com/badged/badged/internal/pgwire"
	"github.com/badged/badged/internal/wait"
	"github.com/badged/badged/projector/internal/logread"
	"github.com/badged/badged/projector/internal/store"
	"github.com/badged/badged/projector/lag"
	"github.com/badged/badged/pubsub"
)

// Config configures a Projector. Pool, Log and Bus are required.
type Config struct {
	// Pool connects to the database. Set up its sessions with ConfigurePool.
	Pool *pgxpool.Pool
	Log  *events.Log
	// Bus gets every update after its commit.
	Bus pubsub.Bus
	// Held returns the partitions that the database holds, in ascending order, if it is
	// one of several. It must not block. Default: all.
	Held func() []int
	// HeldChanged is closed once Held may return others. Default: once partitions were
	// split.
	HeldChanged func() <-chan struct{}
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Metrics defaults to metrics that are not registered.
	Metrics *Metrics

	// PollInterval is how often the projector looks for events appended without a
	// wake, for example by plain SQL. A partition that Append has folded since the
	// last poll has its turn at the next. Default 100ms.
	PollInterval time.Duration
	// MaxBatch is the most events folded in one transaction. Default 5,000.
	MaxBatch int
	// CacheBytes is roughly how much memory the cached users, the keys of recent
	// events and the filters of older ones take, divided evenly among all
	// partitions. Default 256 MiB.
	CacheBytes int
	// Concurrency is how many partitions are folded at once, each on its own
	// connection. Default: the number of processors, at least 2 and at most 4.
	// More would compete with each other and with requests.
	Concurrency int
	// Share, if not nil, bounds the projectors of several databases together.
	Share *Share
	// OwnershipInterval is how often the projector counts the others and takes
	// or gives up partitions until it has its share. An owner that is silent
	// for three intervals loses its partitions. Default 1s.
	OwnershipInterval time.Duration
	// DedupWindow is the least time for which event keys are remembered; the
	// most is half as long again. Default 14 days.
	DedupWindow time.Duration
	// MaintenanceInterval is how often the projector begins a generation of event
	// keys and extends the log, if due. Default 1m.
	MaintenanceInterval time.Duration

	// Trace is called with each batch that has traced events. It returns the
	// trace context for the work that follows each of them, "" for none. It
	// must not block. Default: no tracing.
	Trace func(TracedBatch) []string
	// Folded is called with each batch after its commit, in the order of their
	// positions within a partition. It must neither block nor change what it gets.
	// Default: nothing.
	Folded func(FoldedBatch)
}

// FoldedBatch is a committed batch, for those who follow the log.
type FoldedBatch struct {
	Partition int
	// From is the position before the batch, and To the one behind it.
	From, To events.Position
	// Users and Rooms have changed, as clients see it. Members of a room have changed
	// with it and are not among Users.
	Users, Rooms []string
	// Notifying are the messages with a notification.
	Notifying []*events.Event
}

// Projector folds the partitions that it owns. Any number of projectors may
// run on one database. Each partition has one owner at a time; should it ever
// have two, the fence in the batch transaction keeps the counts right.
type Projector struct {
	cfg        Config
	ran        atomic.Bool
	log        *slog.Logger
	metrics    *Metrics
	deadLog    *rareLog
	leapLog    *rareLog
	partitions []*partition
	// split are those that came from splitting others, by number.
	split   map[int]*partition
	splitMu sync.Mutex
	// silence is how long the session of an owner may be silent.
	silence time.Duration
	// slots bounds how many partitions are folded at once.
	slots chan struct{}
	// connections are used by batches.
	connections *connections
	// appending are used by appends that fold.
	appending *connections
	// open are the transactions that partitions have seen open.
	open logread.Watch
	// turnPatience is the constant, except in tests.
	turnPatience time.Duration
	// clock tells the database's time.
	clock dbclock.Clock
	// restartTold is when a restart of Postgres was logged last, in Unix nanoseconds.
	restartTold atomic.Int64
	// updates are waiting for the bus.
	updates chan store.Updates
	// merges holds a token while event keys wait to be merged.
	merges chan struct{}
}

// New returns a projector that does nothing until Run.
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
		cfg:          cfg,
		log:          cfg.Logger,
		metrics:      cfg.Metrics,
		deadLog:      newDeadLog(cfg.Logger),
		leapLog:      newLeapLog(cfg.Logger),
		silence:      silentIntervals * cfg.OwnershipInterval,
		slots:        make(chan struct{}, cfg.Concurrency),
		connections:  newConnections(cfg.Pool, 0),
		appending:    newConnections(cfg.Pool, lockPatience),
		updates:      make(chan store.Updates, 256),
		merges:       make(chan struct{}, 1),
		split:        map[int]*partition{},
		turnPatience: turnPatience,
		open:         logread.Watch{Patience: openPatience},
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

// openPatience is how long batches wait for a transaction that was opened a
// moment ago.
const openPatience = 20 * time.Millisecond

// pausedBatch is how long a transaction of the pool may be idle until Postgres
// ends its session. One that is frozen, or whose host vanished, may hold locks.
const pausedBatch = 3 * time.Second

// ConfigurePool sets up the sessions of a pool for the projector. Each of its
// queries looks up known rows by key; without statistics, as on young tables,
// the planner would scan instead. Most are different rows: remembering what was
// looked up costs more than it saves, and so does sorting rows by their page. What the
// database or the role sets otherwise has no effect on results. Others are further settings.
func ConfigurePool(cfg *pgxpool.Config, others ...pgsession.Setting) {
	settings := append([]pgsession.Setting{
		{Name: "idle_in_transaction_session_timeout", Value: strconv.FormatInt(pausedBatch.Milliseconds(), 10)},
		{Name: "plan_cache_mode", Value: "force_generic_plan"},
	}, others...)
	for _, method := range []string{"seqscan", "bitmapscan", "hashjoin", "mergejoin", "memoize"} {
		settings = append(settings, pgsession.Setting{Name: "enable_" + method, Value: "off"})
	}
	pgsession.Configure(cfg.ConnConfig, settings...)
	cfg.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		pgwire.RegisterArrays(conn.TypeMap())
		return nil
	}
	pgsession.CheckIdle(cfg)
}

// Wake reports that a partition has new events. It does not block, is safe for
// concurrent use, and does nothing if the projector does not own the
// partition.
func (p *Projector) Wake(partition int) {
	if partition >= 0 && partition < eventlog.PartitionNumbers {
		p.partition(partition).wake()
	}
}

// Run folds until ctx is done and then returns nil, after the current batches
// are committed and published. It fails if it was called before.
func (p *Projector) Run(ctx context.Context) error {
	if p.ran.Swap(true) {
		return errors.New("projector: Run was called before; make another with New")
	}
	// The publisher outlives the partitions, so that their last updates are
	// published too.
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
	g.Go(func() error { return p.own(ctx) })
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

// release returns the kept connections to their pool.
func (p *Projector) release() {
	p.connections.release()
	p.appending.release()
}

// publish publishes committed updates on the bus in commit order. The bus may
// fail or be slow: gateways notice what they missed, and folding does not
// wait.
func (p *Projector) publish(ctx context.Context) {
	lost := func(n int, err error) {
		p.metrics.updatesLost.Add(float64(n))
		p.log.WarnContext(ctx, "cannot publish updates; reconciliation will deliver them", "updates", n, "error", err)
	}
	for updates := range p.updates {
		if len(updates.Users) > 0 {
			if err := p.cfg.Bus.Publish(ctx, updates.Users); err != nil {
				// Without those of members, updates of rooms would be wrong for them.
				// The next update of each room shows that one was lost.
				lost(updates.Len(), err)
				continue
			}
		}
		if len(updates.Rooms) > 0 {
			if err := p.cfg.Bus.PublishRooms(ctx, updates.Rooms); err != nil {
				lost(len(updates.Rooms), err)
			}
		}
	}
}

// Tell queues updates for the bus after those of earlier batches. If the queue
// is full it drops them; reconciliation delivers them later. It does not block
// and is safe for concurrent use while Run runs.
func (p *Projector) Tell(updates []pubsub.Update) { p.tell(store.Updates{Users: updates}) }

func (p *Projector) tell(updates store.Updates) {
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

// measure updates the metrics of the lag.
func (p *Projector) measure(ctx context.Context) {
	p.measureClock(ctx)
	measuring, cancel := context.WithTimeout(ctx, lagPatience)
	lags, err := lag.Measure(measuring, p.cfg.Pool, p.OwnedPartitions(), lagLimit)
	cancel()
	var waiting float64
	if err == nil {
		// Copies for partitions that are moving to the database are not its own.
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

// measureClock reads the clock of the database: appends that fold read nothing else that
// tells it. If it fails, the last reading and the time since hold.
func (p *Projector) measureClock(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lagInterval)
	defer cancel()
	if err := p.clock.Measure(ctx, func(ctx context.Context) (time.Time, error) { return pgsession.Now(ctx, p.cfg.Pool) }); err != nil && ctx.Err() == nil {
		p.log.WarnContext(ctx, "cannot measure the clock of the database", "error", err)
	}
}

// Measuring the lag reads the log, so do it rarely and read little.
const (
	lagInterval = 5 * time.Second
	lagLimit    = 100_000
	// lettersLimit is how many dead letters are counted.
	lettersLimit = 10_000
	// lagPatience bounds it while something locks a partition.
	lagPatience = 10 * time.Second
)
