// Package projector folds the event log into the badges: how many messages
// each user has not read, by conversation and in total.
//
// The fold itself is pure (fold.go). Around it, one transaction per batch
// moves the position of the partition and writes every row that changed
// (batch.go, tables.go), one owner per partition runs batches (partition.go,
// ownership.go), and [Reader] answers what the numbers are.
package projector

import (
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
	"github.com/badged/badged/pubsub"
)

// ConsumerGroup is the watermill consumer group under which the positions of
// the projector are kept.
const ConsumerGroup = "projector"

// Config is what a projector works on and how. Pool, Log and Bus are required.
type Config struct {
	// Pool connects to the database. Its sessions should be set up by
	// ConfigurePool.
	Pool *pgxpool.Pool
	Log  *events.Log
	// Bus is told of every change after its commit.
	Bus pubsub.Bus
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Metrics defaults to metrics that nobody sees.
	Metrics *Metrics

	// PollInterval is how long an event can stay unnoticed that nobody woke
	// the projector for, such as one written by plain SQL. Default 100ms.
	PollInterval time.Duration
	// MaxBatch is the most events folded in one transaction. Default 5,000.
	MaxBatch int
	// CacheBytes is about how much memory the users take that the projector
	// remembers so as not to load them again, and the keys of recent events,
	// shared out evenly among all partitions. Default 256 MiB.
	CacheBytes int
	// Concurrency is how many partitions are folded at once, each on a
	// connection of its own. Default: as many as there are processors, but 2 to
	// 4. More would get in each other's way, and in that of requests.
	Concurrency int
	// OwnershipInterval is how often the projector looks how many others there
	// are, and takes or gives up partitions until it has its share. An owner that
	// is silent for three of these loses its partitions. Default 1s.
	OwnershipInterval time.Duration
	// DedupWindow is how long the keys of events are remembered at least, and
	// at most half as long again. Default 14 days.
	DedupWindow time.Duration
	// UpkeepInterval is how often the projector looks whether keys are to be
	// forgotten. Default 1m.
	UpkeepInterval time.Duration

	// VerifyInterval is how often a sample of the users of a partition that
	// this projector owns is verified. 0 means never.
	VerifyInterval time.Duration
	// VerifySample is the most users of one sample; fewer where the log of the
	// partition is long. Default 10, and at most 16.
	VerifySample int
	// Trace is told of batches with traced events, and returns the trace context
	// of what follows for each of these, "" where nothing is to be followed. It
	// must not block. Nobody is told by default.
	Trace func(TracedBatch) []string
	// SelfHeal makes the badges of a user what the log says where the sample
	// finds that they are not.
	SelfHeal bool
}

// Projector folds the partitions that it owns. Any number of projectors may
// run on one database: each partition has one owner at a time, and should it
// ever have two, the fence in the batch transaction keeps the counts right.
type Projector struct {
	cfg        Config
	log        *slog.Logger
	metrics    *Metrics
	partitions []*partition
	// silence is for how long the session of an owner may be silent.
	silence time.Duration
	// slots bounds how many partitions are folded at once.
	slots chan struct{}
	// connections are what batches run on.
	connections *connections
	// commits counts the batches that were committed.
	commits atomic.Int64
	// updates are on their way to the bus.
	updates chan []pubsub.Update
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
	if cfg.PollInterval <= 0 {
		cfg.PollInterval = 100 * time.Millisecond
	}
	if cfg.MaxBatch <= 0 {
		cfg.MaxBatch = 5000
	}
	if cfg.CacheBytes <= 0 {
		cfg.CacheBytes = 256 << 20
	}
	if cfg.Concurrency <= 0 {
		cfg.Concurrency = min(max(2, runtime.GOMAXPROCS(0)), 4)
	}
	if cfg.OwnershipInterval <= 0 {
		cfg.OwnershipInterval = time.Second
	}
	if cfg.DedupWindow <= 0 {
		cfg.DedupWindow = 14 * 24 * time.Hour
	}
	if cfg.UpkeepInterval <= 0 {
		cfg.UpkeepInterval = time.Minute
	}
	if cfg.VerifySample <= 0 {
		cfg.VerifySample = 10
	}
	p := &Projector{
		cfg:         cfg,
		log:         cfg.Logger,
		metrics:     cfg.Metrics,
		silence:     silentIntervals * cfg.OwnershipInterval,
		slots:       make(chan struct{}, cfg.Concurrency),
		connections: newConnections(cfg.Pool),
		updates:     make(chan []pubsub.Update, 256),
	}
	for i := range cfg.Log.Partitions() {
		p.partitions = append(p.partitions, newPartition(i, p))
	}
	return p, nil
}

// pausedBatch is for how long a batch may leave its transaction waiting, which
// takes it milliseconds, until Postgres ends its session. One that is frozen in
// the middle, or whose host vanished, keeps others from folding its partition,
// and hides newer events in all.
const pausedBatch = 3 * time.Second

// ConfigurePool sets up the sessions of a pool for the projector. Every one of
// its queries is a lookup by key of rows that are known in advance; without
// statistics, as on young tables, the planner would rather scan them.
func ConfigurePool(cfg *pgxpool.Config) {
	params := cfg.ConnConfig.RuntimeParams
	params["idle_in_transaction_session_timeout"] = strconv.FormatInt(pausedBatch.Milliseconds(), 10)
	params["enable_seqscan"] = "off"
	params["enable_hashjoin"] = "off"
	params["enable_mergejoin"] = "off"
	params["plan_cache_mode"] = "force_generic_plan"
	cfg.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		events.RegisterArrays(conn.TypeMap())
		return nil
	}
}

// Wake says that a partition has new events. It does not block, is safe for
// concurrent use, and costs nothing where the projector does not own it.
func (p *Projector) Wake(partition int) {
	if partition >= 0 && partition < len(p.partitions) {
		p.partitions[partition].wake()
	}
}

// settled tells the partitions that wait for older transactions that a batch,
// which may have been one of those, has committed.
func (p *Projector) settled() {
	p.commits.Add(1)
	for _, part := range p.partitions {
		if part.hidden.Load() && part.hidden.Swap(false) {
			part.wake()
		}
	}
}

// Run folds until ctx is done and then returns nil, once the batches at hand
// are committed and told to the bus.
func (p *Projector) Run(ctx context.Context) error {
	// The publisher outlives the partitions, so that what they committed last
	// is told too.
	var publishing sync.WaitGroup
	lasting := context.WithoutCancel(ctx)
	publishing.Go(func() { p.publish(lasting) })

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.cfg.Bus.Wakes(ctx, p.Wake) })
	g.Go(func() error { return p.poll(ctx) })
	g.Go(func() error { return p.measure(ctx) })
	g.Go(func() error { return p.upkeep(ctx) })
	g.Go(func() error { return p.own(ctx) })
	g.Go(func() error { return p.sample(ctx) })
	err := g.Wait()
	p.connections.release()
	close(p.updates)
	publishing.Wait()
	if err != nil {
		return fmt.Errorf("projector: %w", err)
	}
	return nil
}

// publish tells the bus what was committed, in the order of commits. The bus
// may fail or be slow: gateways find out by themselves what they missed, and
// folding does not wait for it.
func (p *Projector) publish(ctx context.Context) {
	for updates := range p.updates {
		if err := p.cfg.Bus.Publish(ctx, updates); err != nil {
			p.metrics.updatesLost.Add(float64(len(updates)))
			p.log.WarnContext(ctx, "updates not published; reconciliation will deliver them",
				"updates", len(updates), "error", err)
		}
	}
}

// enqueue hands updates to publish, and drops them where the bus is so far
// behind that nothing more can wait for it.
func (p *Projector) enqueue(updates []pubsub.Update) {
	if len(updates) == 0 {
		return
	}
	select {
	case p.updates <- updates:
	default:
		p.metrics.updatesLost.Add(float64(len(updates)))
	}
}

// ownedPartitions returns the ids of the partitions that are being folded here.
func (p *Projector) ownedPartitions() []int {
	owned := make([]int, 0, len(p.partitions))
	for _, part := range p.partitions {
		if part.owned.Load() {
			owned = append(owned, part.id)
		}
	}
	return owned
}

// measure keeps the metrics of the lag and of the horizon.
func (p *Projector) measure(ctx context.Context) error {
	tick := time.NewTicker(lagInterval)
	defer tick.Stop()
	var horizon horizonWatch
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		horizon.look(ctx, p)
		lags, err := Lags(ctx, p.cfg.Pool, p.ownedPartitions(), lagLimit)
		if err != nil {
			if ctx.Err() == nil {
				p.log.WarnContext(ctx, "cannot measure the lag", "error", err)
			}
			continue
		}
		var waiting float64
		if err := p.cfg.Pool.QueryRow(ctx, `SELECT count(*) FROM badged.dead_letters`).Scan(&waiting); err == nil {
			p.metrics.deadLettersWaiting.Set(waiting)
		}
		p.metrics.lagEvents.Reset() // partitions may have been given up
		p.metrics.lagSeconds.Reset()
		for _, l := range lags {
			label := strconv.Itoa(l.Partition)
			p.metrics.lagEvents.WithLabelValues(label).Set(float64(l.Events))
			p.metrics.lagSeconds.WithLabelValues(label).Set(l.Age.Seconds())
		}
	}
}

// Measuring the lag reads the log, so neither often nor far.
const (
	lagInterval = 5 * time.Second
	lagLimit    = 100_000
)

// poll wakes the partitions that have events after their positions, for those
// events that came without a wake.
func (p *Projector) poll(ctx context.Context) error {
	tick := time.NewTicker(p.cfg.PollInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		owned := p.ownedPartitions()
		if len(owned) == 0 {
			continue
		}
		behind, err := Behind(ctx, p.cfg.Pool, owned)
		if err != nil {
			if ctx.Err() == nil {
				p.log.WarnContext(ctx, "poll failed", "error", err)
			}
			continue
		}
		for _, id := range behind {
			p.Wake(id)
		}
	}
}
