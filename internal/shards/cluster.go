// Package shards knows which database holds each partition.
//
// A shard is a database with whole partitions. The map says which shard holds a
// partition; every shard has a copy of it, and for each partition the entry with the
// greatest revision is true. So moving a partition needs no transaction over several
// databases. A database by itself, without a row in badged.shard, holds all partitions:
// then nothing here reads a map.
//
// It does not know HTTP, frames or the fold. ADR 82 explains the map, ADR 98 messages to
// rooms.
package shards

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/eventlog"
	"github.com/badged/badged/internal/wait"
)

// Database is a database of the configuration.
type Database struct {
	// Name is that of the shard, "" for the only database.
	Name string
	// Pool connects to it. It need not be reachable.
	Pool *pgxpool.Pool
	// Err is why the shard cannot be reached, if that is known already: it is not asked again
	// then, and is away at first.
	Err error
}

// Config configures a Cluster.
type Config struct {
	// Databases are all shards, in the order of the configuration, or the only database.
	// Required.
	Databases []Database
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Check, if not nil, is called when a shard is reached for the first time, with its
	// index among Databases. If it fails, the shard is away.
	Check func(ctx context.Context, index int) error
	// Now is the time of events that have none. Default time.Now.
	Now func() time.Time
	// Guard, if not nil, is that of the pools: see [Guard.Configure].
	Guard *Guard
	// Interval is how often Run reads the maps. Default 500ms.
	Interval time.Duration
	// Patience is how long a shard may take to answer until it is away. Default 2s, and
	// 10s for Open.
	Patience time.Duration
}

// Cluster is all shards, or one database. It is safe for concurrent use.
type Cluster struct {
	cfg     Config
	sharded bool
	shards  []*Shard
	// id is the name of the cluster, "" for one database.
	id string
	// partitions is with how many the log began.
	partitions int
	// encoding is that of the shards, "" for one database.
	encoding string
	// reloading is held while maps are merged, and complaint and claims used.
	reloading sync.Mutex
	complaint complaint
	claims    []claim
	state     atomic.Pointer[state]
}

// Shard is a database of a cluster.
type Shard struct {
	// Name is "" for the only database.
	Name string
	Pool *pgxpool.Pool
	// Log is the log of the database. Appending to a partition that the shard does not
	// hold fails with [events.ErrNotHeld].
	Log *events.Log

	index   int
	cluster *Cluster
	// last is what the shard said last; only refresh changes it.
	last view
	// status is read by others.
	status atomic.Pointer[status]
	// ready is closed once the shard was reached and is what it should be.
	ready     chan struct{}
	openReady sync.Once
}

const openPatience = 10 * time.Second

// Open reads what the databases say. It fails if they are not one cluster, see the
// errors of this package, with [events.ErrNotMigrated] if a database has no schema and
// with [events.ErrRestored] if the order of a log cannot be trusted. A shard that cannot
// be reached is away if another names it. Close closes the pools, also if Open fails.
func Open(ctx context.Context, cfg Config) (*Cluster, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Interval <= 0 {
		cfg.Interval = time.Second / 2 // folding waits as long for a partition that was moved or split
	}
	patience := openPatience
	if cfg.Patience <= 0 {
		cfg.Patience = 2 * time.Second
	} else {
		patience = cfg.Patience
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	c := &Cluster{cfg: cfg}
	var err error
	if len(cfg.Databases) == 1 && cfg.Databases[0].Name == "" {
		err = c.openOne(ctx)
	} else {
		err = c.openAll(ctx, patience)
	}
	if err != nil {
		for _, d := range cfg.Databases {
			d.Pool.Close()
		}
		return nil, err
	}
	for _, s := range c.shards {
		s.log().UseClock(cfg.Now)
	}
	return c, nil
}

// openOne opens a database by itself.
func (c *Cluster) openOne(ctx context.Context) error {
	pool := c.cfg.Databases[0].Pool
	log, err := events.Open(ctx, pool)
	if err != nil {
		return err
	}
	name, err := nameOf(ctx, pool)
	if err != nil {
		return fmt.Errorf("read which shard the database is: %w", err)
	}
	if name != "" {
		return fmt.Errorf("%w, %s: name every shard with --shard NAME=URL instead of --database-url", ErrAShard, name)
	}
	c.partitions = log.Partitions()
	s := &Shard{Pool: pool, Log: log, cluster: c, ready: make(chan struct{})}
	close(s.ready)
	c.shards = []*Shard{s}
	c.publishOne(log.Layout())
	return nil
}

// openAll opens several shards.
func (c *Cluster) openAll(ctx context.Context, patience time.Duration) error {
	c.sharded = true
	for i, d := range c.cfg.Databases {
		c.shards = append(c.shards, &Shard{Name: d.Name, Pool: d.Pool, index: i, cluster: c, ready: make(chan struct{})})
	}
	var merged placement
	for attempt := 1; ; attempt++ {
		views := readAll(ctx, c.cfg.Databases, patience)
		var err error
		merged, err = merge(views, true)
		// A partition that moves between two of the reads is held twice, as it seems, or by
		// no shard.
		if attempt < 3 && (errors.Is(err, ErrClaims) || err == nil && len(merged.lost(views)) > 0) {
			if err := wait.For(ctx, movePause); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		for i, s := range c.shards {
			s.last = views[i]
		}
		break
	}
	c.id, c.partitions, c.encoding = merged.cluster, merged.first, merged.encoding
	if c.cfg.Guard != nil {
		c.cfg.Guard.cluster.Store(&c.id)
	}
	var errs []error
	for _, s := range c.shards {
		s.Log = events.Attach(s.Pool, c.partitions)
		if s.last.err != nil {
			c.cfg.Logger.WarnContext(ctx, "a shard cannot be reached: nothing reaches its users' badges until it is back",
				"shard", s.Name, "partitions", List(merged.of(s.Name)), "error", s.last.err)
			continue
		}
		if err := s.check(ctx); err != nil {
			errs = append(errs, fmt.Errorf("shard %s: %w", s.Name, err))
			continue
		}
		s.reached()
	}
	c.publish(merged, nil)
	return errors.Join(errs...)
}

// Close closes the pools.
func (c *Cluster) Close() {
	for _, s := range c.shards {
		s.Pool.Close()
	}
}

// Sharded reports whether there may be several databases.
func (c *Cluster) Sharded() bool { return c.sharded }

// ID is the name of the cluster, "" for one database by itself.
func (c *Cluster) ID() string { return c.id }

// Partitions returns with how many partitions the log began: see [events.Layout].
func (c *Cluster) Partitions() int { return c.partitions }

// Layout returns in which partition each user is, as last known.
func (c *Cluster) Layout() *events.Layout { return c.state.Load().layout }

// PartitionOf returns the partition of a user, as last known.
func (c *Cluster) PartitionOf(userID string) int { return c.Layout().PartitionOf(userID) }

// Route returns the partition of a user before any was split, which never changes: updates
// for clients are routed by it.
func (c *Cluster) Route(userID string) int { return c.shards[0].Log.Route(userID) }

// CheckPartition returns why there is no partition with a number, nil if there is.
func (c *Cluster) CheckPartition(partition int) error { return c.Layout().Check(partition) }

// Shards returns the shards in the order of the configuration. The caller must not
// change them.
func (c *Cluster) Shards() []*Shard { return c.shards }

// Shard returns a shard by its name, and nil if there is none.
func (c *Cluster) Shard(name string) *Shard {
	for _, s := range c.shards {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// ShardOf returns the shard that the map gives a partition to, whether or not it can be
// reached, and nil if it is not configured.
func (c *Cluster) ShardOf(partition int) *Shard {
	if i := c.state.Load().owner(partition); i >= 0 {
		return c.shards[i]
	}
	return nil
}

// Place returns the index of the shard of a user among Shards. It fails with an error that
// wraps [ErrAway] if the shard cannot be reached.
func (c *Cluster) Place(userID string) (int, error) {
	st := c.state.Load()
	partition := st.layout.PartitionOf(userID)
	i := st.owner(partition)
	if i < 0 {
		return 0, st.lacks(partition)
	}
	return i, c.shards[i].Err()
}

// Map returns the place of each partition, by its number. The caller must not change it.
func (c *Cluster) Map() []Place { return c.state.Load().places }

// Away returns the partitions that no reachable shard holds, in ascending order.
func (c *Cluster) Away() []int { return c.state.Load().away }

// Problem returns why the maps that the shards have now are not in use, nil if they
// are: the last good ones are.
func (c *Cluster) Problem() error { return c.state.Load().problem }

// Changed is closed once the map, or what can be reached of it, is another than now.
func (c *Cluster) Changed() <-chan struct{} { return c.state.Load().changed }

// Held returns the partitions that the shard holds, in ascending order; those of a
// shard that is away are the last known. The caller must not change them.
func (s *Shard) Held() []int { return s.status.Load().held }

// Holds reports whether the shard holds a partition.
func (s *Shard) Holds(partition int) bool {
	holds := s.status.Load().holds
	return partition < len(holds) && holds[partition]
}

// Lost returns the partitions that the map gives to the shard, and that it does not hold
// although it can be reached. For a moment that is so in the switch of a move; otherwise
// the database was restored from before it got them.
func (s *Shard) Lost() (partitions []int) {
	st := s.cluster.state.Load()
	for p := range st.lost {
		if st.owners[p] == s.index {
			partitions = append(partitions, p)
		}
	}
	slices.Sort(partitions)
	return partitions
}

// Err returns why the shard is away, an [*AwayError], and nil while it can be
// reached. It is nil for one database by itself.
func (s *Shard) Err() error { return s.status.Load().err }

// Ready is closed once the shard was reached for the first time: only then may
// anything fold its log.
func (s *Shard) Ready() <-chan struct{} { return s.ready }

// log returns what only badged does with the log.
func (s *Shard) log() *eventlog.Log[events.Event] { return (*eventlog.Log[events.Event])(s.Log) }

// Label names the shard in messages: "shard b", "the database".
func (s *Shard) Label() string {
	if s.Name == "" {
		return "the database"
	}
	return "shard " + s.Name
}

// check fails if nothing may be folded on the shard.
func (s *Shard) check(ctx context.Context) error {
	if check := s.cluster.cfg.Check; check != nil {
		if err := check(ctx, s.index); err != nil {
			return err
		}
	}
	return s.Log.Check(ctx)
}

func (s *Shard) reached() { s.openReady.Do(func() { close(s.ready) }) }
