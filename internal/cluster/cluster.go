// Package cluster stores which database holds each partition. Packages that use it work in the
// same way with one database and with several.
//
// The map assigns each partition to a database. Every database stores a copy of the map. The
// copies may differ: for each partition, the entry with the greatest revision is valid. So moving
// a partition needs no transaction over several databases. A single database holds all
// partitions, has no map, and has no row in badged.shard. In messages to users, each of several
// databases is called a shard.
//
// The package does not know HTTP, frames or the fold. ADR 82 explains the map, ADR 98 messages
// to rooms.
package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/wait"
)

// Candidate is a database of the configuration.
type Candidate struct {
	// Name is "" for the only database.
	Name string
	// Pool connects to the database. The database may be unavailable.
	Pool *pgxpool.Pool
	// Err is set if the caller has failed to connect to the database. Open then does not try
	// again: the database counts as unavailable.
	Err error
}

// Config configures a Cluster.
type Config struct {
	// Databases has all databases, in the order of the configuration. Required.
	Databases []Candidate
	// Logger defaults to a logger that discards everything.
	Logger *slog.Logger
	// Check, if not nil, is called when a database is reached, until Check has succeeded for this
	// database. It is not called for a single database. index is the index of the database in
	// Databases. If Check fails during Open, Open fails; if it fails later, the database counts as
	// unavailable.
	Check func(ctx context.Context, index int) error
	// Now returns the time for events that have no time. Default time.Now.
	Now func() time.Time
	// Guard, if not nil, has configured the pools: see [Guard.Configure].
	Guard *Guard
	// Interval is the time between two readings of the maps by Run. Default 500ms.
	Interval time.Duration
	// Patience limits how long a database may take to answer; after that it counts as unavailable.
	// Default 2s, and 10s for Open.
	Patience time.Duration
}

// Cluster has the databases of a configuration, one or several. It is safe for concurrent use.
type Cluster struct {
	cfg       Config
	several   bool
	databases []*Database
	// id is the name of the cluster, "" for a single database.
	id string
	// partitions is the number of partitions before any was split.
	partitions int
	// encoding is the text encoding of all databases, "" for a single database.
	encoding string
	// reloading protects the fields complaint and claims. It also prevents concurrent merges of the
	// databases' maps.
	reloading sync.Mutex
	complaint complaint
	claims    []claim
	state     atomic.Pointer[state]
}

// Database is a database of a cluster.
type Database struct {
	// Name is "" for the only database.
	Name string
	Pool *pgxpool.Pool
	// Log is the log of the database. Appending to a partition that the database does not
	// hold fails with [events.ErrNotHeld].
	Log *events.Log

	index   int
	cluster *Cluster
	// last is the result of the newest read of the database; only Open and refresh write it.
	last view
	// status is the published status; any goroutine may read it.
	status atomic.Pointer[status]
	// ready is closed when the database was reached and check has succeeded.
	ready     chan struct{}
	openReady sync.Once
}

const openPatience = 10 * time.Second

// Open reads the map from every database. It fails with an error of this package, such as
// [ErrForeign], if the databases are not one cluster; with [events.ErrNotMigrated] if a database
// has no schema; and with [events.ErrRestored] if a log was copied and not renumbered yet. Open
// also fails if a database is unavailable and no map of another database names it; if a map names
// it, the database only counts as unavailable. If Open fails, it closes the pools of all databases.
func Open(ctx context.Context, cfg Config) (*Cluster, error) {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.Interval <= 0 {
		cfg.Interval = time.Second / 2 // longer intervals delay the folding of moved and split partitions
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
	for _, s := range c.databases {
		s.Log.UseClock(cfg.Now)
	}
	return c, nil
}

// openOne opens a database that is not part of a cluster.
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
		return fmt.Errorf("%w, %s: name every shard with --shard NAME=URL instead of --database-url", ErrMember, name)
	}
	c.partitions = log.Partitions()
	s := &Database{Pool: pool, Log: log, cluster: c, ready: make(chan struct{})}
	close(s.ready)
	c.databases = []*Database{s}
	c.publishOne(log.Layout())
	return nil
}

// openAll opens several databases.
func (c *Cluster) openAll(ctx context.Context, patience time.Duration) error {
	c.several = true
	for i, d := range c.cfg.Databases {
		c.databases = append(c.databases, &Database{Name: d.Name, Pool: d.Pool, index: i, cluster: c, ready: make(chan struct{})})
	}
	var merged placement
	for attempt := 1; ; attempt++ {
		views := readAll(ctx, c.cfg.Databases, patience)
		var err error
		merged, err = merge(views, true)
		// If a partition moves between the reads of two databases, the views can show that both
		// databases hold it, or that no database holds it. Then read again.
		if attempt < 3 && (errors.Is(err, ErrClaims) || err == nil && len(merged.lost(views)) > 0) {
			if err := wait.For(ctx, movePause); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		for i, s := range c.databases {
			s.last = views[i]
		}
		break
	}
	c.id, c.partitions, c.encoding = merged.cluster, merged.first, merged.encoding
	if c.cfg.Guard != nil {
		c.cfg.Guard.cluster.Store(&c.id)
	}
	var errs []error
	for _, s := range c.databases {
		s.Log = events.Attach(s.Pool, c.partitions)
		if s.last.err != nil {
			c.cfg.Logger.WarnContext(ctx, "a shard cannot be reached: the badges of its users do not change until it is back",
				"shard", s.Name, "partitions", List(merged.partitionsOf(s.Name)), "error", s.last.err)
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
	for _, s := range c.databases {
		s.Pool.Close()
	}
}

// Several reports whether the cluster can have several databases. It is false if the only database
// has no name: such a database has no map.
func (c *Cluster) Several() bool { return c.several }

// ID returns the name of the cluster, "" for a single database.
func (c *Cluster) ID() string { return c.id }

// Partitions returns the number of partitions before any was split: see [events.Layout].
func (c *Cluster) Partitions() int { return c.partitions }

// Layout returns the last known layout, which maps users to partitions.
func (c *Cluster) Layout() *events.Layout { return c.state.Load().layout }

// PartitionOf returns the partition of a user in the last known layout.
func (c *Cluster) PartitionOf(userID string) int { return c.Layout().PartitionOf(userID) }

// Route returns the initial partition of a user: the partition to which the user belonged before
// any split. It never changes, so the bus uses it to address updates for clients.
func (c *Cluster) Route(userID string) int { return c.databases[0].Log.Route(userID) }

// CheckPartition fails if no partition has the number.
func (c *Cluster) CheckPartition(partition int) error { return c.Layout().Check(partition) }

// Databases returns the databases in the order of the configuration. The caller must not
// change them.
func (c *Cluster) Databases() []*Database { return c.databases }

// Database returns the database with a name, nil if no database has the name.
func (c *Cluster) Database(name string) *Database {
	for _, s := range c.databases {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// DatabaseOf returns the database to which the map assigns a partition, even if the database
// cannot be reached. It returns nil if the database is not configured.
func (c *Cluster) DatabaseOf(partition int) *Database {
	if i := c.state.Load().owner(partition); i >= 0 {
		return c.databases[i]
	}
	return nil
}

// Place returns the index, in [Cluster.Databases], of the database that holds a user. It fails with
// an error that wraps [ErrAway] if the database is unavailable or is not configured.
func (c *Cluster) Place(userID string) (int, error) {
	st := c.state.Load()
	partition := st.layout.PartitionOf(userID)
	i := st.owner(partition)
	if i < 0 {
		return 0, st.unconfiguredError(partition)
	}
	return i, c.databases[i].Err()
}

// Map returns the place of each partition, indexed by partition. The caller must not change it.
func (c *Cluster) Map() []Place { return c.state.Load().places }

// Away returns the partitions that no reachable database holds, in ascending order.
func (c *Cluster) Away() []int { return c.state.Load().away }

// Problem returns the error of the last merge of the databases' maps, nil if the merge
// succeeded. While merges fail, the cluster uses the last merged map.
func (c *Cluster) Problem() error { return c.state.Load().problem }

// Changed returns a channel. The channel is closed at the next change of the map, of the set of
// reachable databases, or of the partitions that a database holds.
func (c *Cluster) Changed() <-chan struct{} { return c.state.Load().changed }

// Held returns the partitions that the database holds, in ascending order. While the database is
// unavailable, Held returns the result of the last read. The caller must not change the slice.
func (s *Database) Held() []int { return s.status.Load().held }

// Holds reports whether the database holds a partition.
func (s *Database) Holds(partition int) bool {
	holds := s.status.Load().holds
	return partition < len(holds) && holds[partition]
}

// Lost returns the partitions that the map assigns to the database but that the database does not
// hold, although it can be reached. During a move of a partition this is normal for less than a
// second, between the release by the old database and the commit in the new database. If Lost
// returns partitions for longer, the database was restored to a time before it received the
// partitions.
func (s *Database) Lost() (partitions []int) {
	st := s.cluster.state.Load()
	for p := range st.lost {
		if st.owners[p] == s.index {
			partitions = append(partitions, p)
		}
	}
	slices.Sort(partitions)
	return partitions
}

// Err returns a [*Fault] if the database is unavailable. For a single database it always returns
// nil.
func (s *Database) Err() error { return s.status.Load().err }

// Ready returns a channel that is closed after the database was reached for the first time and
// has passed its checks. Do not fold the log of the database before the channel is closed.
func (s *Database) Ready() <-chan struct{} { return s.ready }

// HasAll reports whether this is a single database, which always holds the log of all users. Then
// one transaction can append events of any users.
func (s *Database) HasAll() bool { return !s.cluster.several }

// Label names the database in messages: "shard b", or "the database" for a single database.
func (s *Database) Label() string {
	if s.Name == "" {
		return "the database"
	}
	return "shard " + s.Name
}

// Archive returns the location of the database's archive. location is the archive location of the
// cluster. Each database has its own log and archive.
func (s *Database) Archive(location string) string {
	if s.Name == "" || location == "" {
		return location
	}
	return strings.TrimSuffix(location, "/") + "/" + s.Name
}

// Logger returns a logger whose lines name the database, if there are several.
func (s *Database) Logger(log *slog.Logger) *slog.Logger {
	if s.Name == "" {
		return log
	}
	return log.With("shard", s.Name)
}

// check fails if the log of the database must not be folded.
func (s *Database) check(ctx context.Context) error {
	if check := s.cluster.cfg.Check; check != nil {
		if err := check(ctx, s.index); err != nil {
			return err
		}
	}
	return s.Log.Check(ctx)
}

func (s *Database) reached() { s.openReady.Do(func() { close(s.ready) }) }
