// Package shards knows which database holds each partition.
//
// A shard is a database with whole partitions. The map says which shard holds a
// partition; every shard has a copy of it, and for each partition the entry with the
// greatest revision is true. So moving a partition needs no transaction over several
// databases. A database by itself, without a row in badged.shard, holds all partitions:
// then nothing here reads a map.
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
)

// Database is a database of the configuration.
type Database struct {
	// Name is that of the shard, "" for the only database.
	Name string
	// Pool connects to it. It need not be reachable.
	Pool *pgxpool.Pool
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
	// reloading is held while maps are merged, and complaint and claims used.
	reloading sync.Mutex
	complaint complaint
	claims    []claim
	state     atomic.Pointer[state]
}

// state is what the shards said last. It does not change.
type state struct {
	placement
	layout *events.Layout
	// owners are indexes of shards by partition, -1 for a shard that is not configured.
	owners []int
	// expected are, by the index of a shard, the partitions that the map gives to it; nil for
	// one database by itself.
	expected []*eventlog.Expected
	// away are the living partitions that no reachable shard holds.
	away []int
	// problem is why the last maps were not merged.
	problem error
	// changed is closed when there is another state.
	changed chan struct{}
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

// status is what is known of a shard. It does not change.
type status struct {
	// err is why the shard is away, nil while it can be reached.
	err error
	// held are the partitions that it holds and that the map gives to it, in ascending
	// order, and holds the same by partition. Those of a shard that is away are the last
	// known.
	held  []int
	holds []bool
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

// publishOne makes a state of the layout of a database by itself.
func (c *Cluster) publishOne(layout *events.Layout) {
	before := c.state.Load()
	if before != nil && before.layout.Equal(layout) {
		return
	}
	living := layout.Living()
	next := &state{placement: placement{first: c.partitions}, layout: layout, changed: make(chan struct{})}
	now := &status{held: living}
	for p := range living[len(living)-1] + 1 {
		lives := layout.Lives(p)
		next.places, now.holds = append(next.places, Place{}), append(now.holds, lives)
		if next.owners = append(next.owners, 0); !lives {
			next.owners[p] = -1
		}
	}
	c.shards[0].status.Store(now)
	c.state.Store(next)
	if before != nil {
		close(before.changed)
	}
}

// openAll opens several shards.
func (c *Cluster) openAll(ctx context.Context, patience time.Duration) error {
	c.sharded = true
	for i, d := range c.cfg.Databases {
		c.shards = append(c.shards, &Shard{Name: d.Name, Pool: d.Pool, index: i, cluster: c, ready: make(chan struct{})})
	}
	var merged placement
	for attempt := 1; ; attempt++ {
		views := readAll(ctx, c.shards, patience)
		var err error
		merged, err = merge(views, true)
		// A partition that moves between two of the reads is held twice, as it seems, or by
		// no shard.
		if attempt < 3 && (errors.Is(err, ErrClaims) || err == nil && len(merged.lost(views)) > 0) {
			if err := pause(ctx, movePause); err != nil {
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
	c.id, c.partitions = merged.cluster, merged.first
	if c.cfg.Guard != nil {
		c.cfg.Guard.cluster.Store(&c.id)
	}
	var errs []error
	for _, s := range c.shards {
		s.Log = events.Attach(s.Pool, c.partitions)
		if s.last.err != nil {
			c.cfg.Logger.WarnContext(ctx, "a shard cannot be reached: its users' events are refused and their badges do not change until it is back",
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

// owner returns the index of the shard of a partition, -1 for none.
func (st *state) owner(partition int) int {
	if partition < 0 || partition >= len(st.owners) {
		return -1
	}
	return st.owners[partition]
}

// Place returns the index of the shard of a user among Shards. It fails with an error that
// wraps [ErrAway] if the shard cannot be reached.
func (c *Cluster) Place(userID string) (int, error) {
	s := c.ShardOf(c.PartitionOf(userID))
	if s == nil {
		return 0, fmt.Errorf("%w: the map gives the partition of the user to a shard that is not configured", ErrAway)
	}
	return s.index, s.Err()
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
	if s.Err() != nil {
		return nil
	}
	for _, p := range st.away {
		if st.owners[p] == s.index {
			partitions = append(partitions, p)
		}
	}
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

// publish makes a state of the placement and of what the shards said last.
func (c *Cluster) publish(m placement, problem error) {
	next := &state{placement: m, layout: m.layout(), owners: make([]int, len(m.places)), problem: problem, changed: make(chan struct{})}
	before := c.state.Load()
	held := make([]bool, len(m.places))
	same := before != nil && slices.Equal(before.places, m.places)
	for _, s := range c.shards {
		var old []int
		var oldErr error
		if st := s.status.Load(); st != nil {
			old, oldErr = st.held, st.err
		}
		now := &status{holds: make([]bool, len(m.places))}
		if s.last.err != nil {
			now.err = &AwayError{Shard: s.Name, Partitions: m.of(s.Name), Err: s.last.err}
			now.held = old
		} else {
			for _, p := range s.last.held {
				if p < len(m.places) && m.places[p].Shard == s.Name {
					now.held = append(now.held, p)
					held[p] = true
				}
			}
		}
		for _, p := range now.held {
			now.holds[p] = true
		}
		same = same && slices.Equal(old, now.held) && (oldErr == nil) == (now.err == nil)
		s.status.Store(now)
	}
	for p, place := range m.places {
		next.owners[p] = slices.IndexFunc(c.shards, func(s *Shard) bool { return s.Name == place.Shard })
		if place.Shard != "" && !held[p] {
			next.away = append(next.away, p)
		}
	}
	if before != nil && slices.Equal(before.places, m.places) {
		next.expected = before.expected
	} else {
		next.expected = c.expectations(next)
	}
	if same {
		next.changed = before.changed
	}
	c.state.Store(next)
	for _, s := range c.shards {
		s.log().SetLayout((*eventlog.Layout)(next.layout))
	}
	if !same && before != nil {
		close(before.changed)
	}
}

// expectations returns the partitions of each shard by a map.
func (c *Cluster) expectations(st *state) []*eventlog.Expected {
	revisions := make([]map[int]int64, len(c.shards))
	for i := range revisions {
		revisions[i] = map[int]int64{}
	}
	for p, owner := range st.owners {
		if owner >= 0 {
			revisions[owner][p] = st.places[p].Revision
		}
	}
	var all []*eventlog.Expected
	for _, of := range revisions {
		all = append(all, eventlog.NewExpected(of))
	}
	return all
}
