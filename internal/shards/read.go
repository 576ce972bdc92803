package shards

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
	"github.com/badged/badged/internal/pgfault"
	"github.com/badged/badged/internal/sqlfile"
	"github.com/badged/badged/internal/wait"
)

//go:embed shards.sql
var statementsSQL string

var statements = sqlfile.Parse(statementsSQL)

// querier is a pool or a connection.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// undefined reports whether Postgres does not know a table or schema.
func undefined(err error) bool {
	const undefinedTable, invalidSchemaName = "42P01", "3F000"
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pgErr.Code == undefinedTable || pgErr.Code == invalidSchemaName)
}

// nameOf returns which shard a database is, "" for none.
func nameOf(ctx context.Context, pool *pgxpool.Pool) (name string, err error) {
	err = pool.QueryRow(ctx, statements.Get("is it a shard")).Scan(&name)
	if errors.Is(err, pgx.ErrNoRows) || undefined(err) { // or its migration is pending
		return "", nil
	}
	return name, err
}

// read reads the view of a database.
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
	_, v.err = pgx.ForEachRow(rows, []any{&partition, &place.Shard, &place.Revision, &holds}, func() error {
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

// readAll reads all databases at once. One that does not answer in time, or has an Err, is
// away.
func readAll(ctx context.Context, databases []Database, patience time.Duration) []view {
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
			if lostConnection(views[i].err) { // only one that cannot be connected to is away
				views[i] = read(ctx, d.Pool, d.Name)
			}
		})
	}
	g.Wait()
	return views
}

// lostConnection reports whether an error is that a connection has ended that had been
// made before, as by an operator or a timeout.
func lostConnection(err error) bool {
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	f := pgfault.Of(err)
	return !connecting && (f == pgfault.Restarting || f == pgfault.Unreachable)
}

// Run reads the maps again and again until ctx is done, and returns nil.
func (c *Cluster) Run(ctx context.Context) error {
	if !c.sharded {
		return wait.Every(ctx, c.cfg.Interval, func(ctx context.Context) {
			_ = c.reloadOne(ctx) // others say that the database is away
		})
	}
	var g sync.WaitGroup
	for _, s := range c.shards { // a silent shard does not delay the others
		g.Go(func() {
			_ = wait.Every(ctx, c.cfg.Interval, func(ctx context.Context) { c.refresh(ctx, []*Shard{s}) })
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
	log := c.shards[0].Log
	if err := log.Refresh(ctx); err != nil {
		return fmt.Errorf("read which partitions were split: %w", err)
	}
	c.publishOne(log.Layout())
	return nil
}

// Reload reads the maps of the shards that are not away, after one of them has refused
// a partition. It returns the error of [Cluster.Problem].
func (c *Cluster) Reload(ctx context.Context) error {
	if !c.sharded {
		return c.reloadOne(ctx)
	}
	var present []*Shard
	for _, s := range c.shards {
		if s.Err() == nil {
			present = append(present, s)
		}
	}
	c.refresh(ctx, present)
	return c.Problem()
}

// refresh reads some shards again and merges what all have said last.
func (c *Cluster) refresh(ctx context.Context, some []*Shard) {
	asked := make([]Database, len(some))
	for i, s := range some {
		asked[i] = Database{Name: s.Name, Pool: s.Pool}
	}
	views := readAll(ctx, asked, c.cfg.Patience)
	if ctx.Err() != nil {
		return // not the fault of a shard
	}
	c.reloading.Lock()
	defer c.reloading.Unlock()
	for i, s := range some {
		if views[i].began.After(s.last.began) { // else another refresh was faster
			c.learn(ctx, s, views[i])
		}
	}
	all := make([]view, len(c.shards))
	reachable := false
	for i, s := range c.shards {
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
	if err != nil && !only(err, ErrClaims, ErrMissing) {
		c.publish(before.placement, err)
		return
	}
	// A partition that moves between two reads seems to be held twice: the map decides.
	// The shard that knew it may be away, or was restored to an earlier time and disagrees
	// with others now. If all agree, what they have forgotten is gone.
	remember := err != nil || slices.ContainsFunc(all, func(v view) bool { return v.err != nil })
	for p, place := range before.places {
		if remember && place.Revision > merged.place(p).Revision {
			merged.put(p, place)
		}
	}
	c.publish(merged, err)
	for _, s := range some {
		if s.last.err == nil {
			s.reached()
		}
	}
}

// complaint is an error of the maps.
type complaint struct {
	text  string
	since time.Time
	told  bool
}

// complain logs an error of the maps once it lasts longer than the switch of a partition, and
// than the time after which a silent shard is away: the last view of that shard may be from
// before a switch.
func (c *Cluster) complain(ctx context.Context, err error) {
	switch now := &c.complaint; {
	case err == nil:
		if now.told {
			c.cfg.Logger.InfoContext(ctx, "the shards agree on their partitions again")
		}
		*now = complaint{}
	case now.text != err.Error():
		*now = complaint{text: err.Error(), since: time.Now()}
	case !now.told && time.Since(now.since) >= 3*c.cfg.Interval+2*c.cfg.Patience:
		now.told = true
		c.cfg.Logger.ErrorContext(ctx, "the shards disagree on their partitions", "error", err)
	}
}

// learn stores the view of a shard. A database that is not the shard counts as away: nothing may
// be written there, and the other shards go on.
func (c *Cluster) learn(ctx context.Context, s *Shard, v view) {
	if err := c.mistaken(v); err != nil {
		v = view{name: v.name, began: v.began, err: err}
	}
	if v.err == nil && !isClosed(s.ready) {
		v.err = s.check(ctx)
	}
	switch was := s.last.err; {
	case v.err != nil && was == nil:
		c.cfg.Logger.WarnContext(ctx, "a shard is away: nothing reaches its users' badges until it is back",
			"shard", s.Name, "partitions", List(s.Held()), "error", v.err)
	case v.err == nil && was != nil:
		c.cfg.Logger.InfoContext(ctx, "a shard is back", "shard", s.Name, "partitions", List(v.held))
	}
	s.last = v
}

// mistaken returns why a database that was read cannot be used as the shard.
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
	return sameEncoding(v.name, v.encoding, "others", c.encoding)
}

// only reports whether all reasons of a merge that failed are among some.
func only(err error, whys ...error) bool {
	joined, ok := err.(interface{ Unwrap() []error })
	return ok && !slices.ContainsFunc(joined.Unwrap(), func(e error) bool {
		return !slices.ContainsFunc(whys, func(why error) bool { return errors.Is(e, why) })
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
