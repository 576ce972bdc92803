package cluster

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/pg/pgfault"
	"github.com/badged/badged/internal/pg/sqlfile"
)

//go:embed cluster.sql
var statementsSQL string

var statements = sqlfile.Parse(statementsSQL)

// querier is a pool or a connection.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// undefined reports whether Postgres returned that a table or schema does not exist.
func undefined(err error) bool {
	const undefinedTable, invalidSchemaName = "42P01", "3F000"
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pgErr.Code == undefinedTable || pgErr.Code == invalidSchemaName)
}

// nameOf returns the name of a database in its cluster, "" if it is in no cluster.
func nameOf(ctx context.Context, pool *pgxpool.Pool) (name string, err error) {
	err = pool.QueryRow(ctx, statements.Get("is it a shard")).Scan(&name)
	if errors.Is(err, pgx.ErrNoRows) || undefined(err) { // undefined: the migration is pending
		return "", nil
	}
	return name, err
}

// read reads the identity and the map of a database, and the partitions that it holds.
func read(ctx context.Context, q querier, name string) view {
	v := view{name: name, began: time.Now(), places: map[int]Place{}}
	var cluster, member *string
	var formed *bool
	err := q.QueryRow(ctx, statements.Get("read the identity")).Scan(&v.partitions, &v.encoding, &cluster, &member, &formed)
	switch {
	case undefined(err):
		v.err = fmt.Errorf("%w (%w)", events.ErrNotMigrated, err)
		return v
	case err != nil:
		v.err = err
		return v
	case cluster != nil:
		v.cluster, v.member, v.formed = *cluster, *member, *formed
	}
	rows, _ := q.Query(ctx, statements.Get("read the map"))
	var partition int
	var place Place
	var holds bool
	_, v.err = pgx.ForEachRow(rows, []any{&partition, &place.Database, &place.Revision, &holds}, func() error {
		if place.Revision > 0 {
			v.places[partition] = place
		}
		if holds {
			v.held = append(v.held, partition)
		}
		return nil
	})
	slices.Sort(v.held)
	return v
}

// readAll reads the views of all databases in parallel. A view has an error if the Err of the
// database is set, or if the database does not answer within patience.
func readAll(ctx context.Context, databases []Candidate, patience time.Duration) []view {
	views := make([]view, len(databases))
	var g sync.WaitGroup
	for i, d := range databases {
		if d.Err != nil {
			views[i] = view{name: d.Name, began: time.Now(), err: d.Err}
			continue
		}
		g.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			views[i] = read(ctx, d.Pool, d.Name)
			if lostConnection(views[i].err) { // a read over a new connection may succeed
				views[i] = read(ctx, d.Pool, d.Name)
			}
		})
	}
	g.Wait()
	return views
}

// lostConnection reports whether err means that an established connection was closed, for example
// by an operator or by a timeout.
func lostConnection(err error) bool {
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	f := pgfault.FaultOf(err)
	return !connecting && (f == pgfault.Restarting || f == pgfault.Unreachable)
}

// Run reads the maps every Interval until ctx is done, and then returns nil.
func (c *Cluster) Run(ctx context.Context) error {
	if !c.several {
		return wait.Every(ctx, c.cfg.Interval, func(ctx context.Context) {
			_ = c.reloadOne(ctx) // health checks report the outage
		})
	}
	var g sync.WaitGroup
	for _, s := range c.databases { // a hanging database must not delay the others
		g.Go(func() {
			_ = wait.Every(ctx, c.cfg.Interval, func(ctx context.Context) { c.refresh(ctx, []*Database{s}) })
		})
	}
	g.Wait()
	return nil
}

func (c *Cluster) reloadOne(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Patience)
	defer cancel()
	c.reloading.Lock()
	defer c.reloading.Unlock()
	log := c.databases[0].Log
	if err := log.Refresh(ctx); err != nil {
		return fmt.Errorf("read which partitions were split: %w", err)
	}
	c.publishOne(log.Layout())
	return nil
}

// Reload reads the maps of all available databases. Call it after a database has refused
// events because it does not hold their partition. Reload returns the error of [Cluster.Problem];
// for a single database, it returns the error of the read.
func (c *Cluster) Reload(ctx context.Context) error {
	if !c.several {
		return c.reloadOne(ctx)
	}
	var present []*Database
	for _, s := range c.databases {
		if s.Err() == nil {
			present = append(present, s)
		}
	}
	c.refresh(ctx, present)
	return c.Problem()
}

// refresh reads the views of the given databases. Then it merges the latest views of all databases,
// and publishes the result as the state of the cluster.
func (c *Cluster) refresh(ctx context.Context, databases []*Database) {
	asked := make([]Candidate, len(databases))
	for i, s := range databases {
		asked[i] = Candidate{Name: s.Name, Pool: s.Pool}
	}
	views := readAll(ctx, asked, c.cfg.Patience)
	if ctx.Err() != nil {
		return // the caller canceled; no database failed
	}
	c.reloading.Lock()
	defer c.reloading.Unlock()
	for i, s := range databases {
		if views[i].began.After(s.last.began) { // else another refresh has a newer view
			c.storeView(ctx, s, views[i])
		}
	}
	all := make([]view, len(c.databases))
	reachable := false
	for i, s := range c.databases {
		all[i] = s.last
		reachable = reachable || s.last.err == nil
	}
	before := c.state.Load()
	if !reachable {
		c.publish(before.placement, nil)
		return
	}
	merged, err := merge(all, false)
	c.claims = merged.staleClaims(all)
	c.complain(ctx, errors.Join(append(merged.lost(all), err)...))
	if err != nil && !allMatch(err, ErrClaims, ErrMissing) {
		c.publish(before.placement, err)
		return
	}
	// If two databases seem to hold a partition, the partition may have moved between the two
	// reads: the merged map decides. If the former map has a newer entry for a partition than the
	// merged map, keep the newer entry: the only database that stores it may be unavailable, or may
	// have been restored to an earlier time. But if all databases answer and agree, use the merged
	// entry.
	remember := err != nil || slices.ContainsFunc(all, func(v view) bool { return v.err != nil })
	for p, place := range before.places {
		if remember && place.Revision > merged.place(p).Revision {
			merged.put(p, place)
		}
	}
	c.publish(merged, err)
	for _, s := range databases {
		if s.last.err == nil {
			s.reached()
		}
	}
}

// complaint is the current error of merging the maps. since is the time when a merge first returned
// this error.
type complaint struct {
	text   string
	since  time.Time
	logged bool
}

// complain logs an error of merging the maps once, after the error has lasted for several intervals
// and timeouts. A shorter error is normal during a move: one database was read before the partition
// moved, the other after that, and reading the first again may take until a timeout.
func (c *Cluster) complain(ctx context.Context, err error) {
	switch now := &c.complaint; {
	case err == nil:
		if now.logged {
			c.cfg.Logger.InfoContext(ctx, "the shards agree on their partitions again")
		}
		*now = complaint{}
	case now.text != err.Error():
		*now = complaint{text: err.Error(), since: time.Now()}
	case !now.logged && time.Since(now.since) >= 3*c.cfg.Interval+2*c.cfg.Patience:
		now.logged = true
		c.cfg.Logger.ErrorContext(ctx, "the shards disagree on their partitions", "error", err)
	}
}

// storeView stores the view of a database in s.last. If the view shows that the database is not the
// configured shard, storeView stores an error: the database then counts as unavailable, and nothing
// is written to it.
func (c *Cluster) storeView(ctx context.Context, s *Database, v view) {
	if err := c.mistaken(v); err != nil {
		v = view{name: v.name, began: v.began, err: err}
	}
	if v.err == nil && !isClosed(s.ready) {
		v.err = s.check(ctx)
	}
	switch was := s.last.err; {
	case v.err != nil && was == nil:
		c.cfg.Logger.WarnContext(ctx, "a shard is unavailable: the badges of its users do not change until it is back",
			"shard", s.Name, "partitions", List(s.Held()), "error", v.err)
	case v.err == nil && was != nil:
		c.cfg.Logger.InfoContext(ctx, "a shard is back", "shard", s.Name, "partitions", List(v.held))
	}
	s.last = v
}

// mistaken returns the reason why the database of a view cannot be used as this shard, or nil.
func (c *Cluster) mistaken(v view) error {
	switch {
	case errors.Is(v.err, events.ErrNotMigrated) || v.err == nil && v.cluster == "":
		return errNoShard
	case v.err != nil:
		return v.err
	}
	if err := mistaken(v.cluster, v.member, c.id, v.name); err != nil {
		return err
	}
	return sameEncoding(v.name, v.encoding, "the others have", c.encoding)
}

// allMatch reports whether every error joined in err matches one of targets.
func allMatch(err error, targets ...error) bool {
	joined, ok := err.(interface{ Unwrap() []error })
	return ok && !slices.ContainsFunc(joined.Unwrap(), func(e error) bool {
		return !slices.ContainsFunc(targets, func(cause error) bool { return errors.Is(e, cause) })
	})
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
