package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/base/wait"
)

// After a partition has moved from database A to database B, A may be restored to a time before
// the move. Then A holds the partition again. Servers follow the map, so only a publisher that
// uses A directly can append to this stale partition. When a server sees that B holds the
// partition at a later revision, it makes A release the partition. Then it appends the events
// that were published on A to B.

// claim describes a stale partition: the database called shard holds the partition although
// another database holds it at a later revision.
type claim struct {
	shard     string
	partition int
	// place has the name of the other database and the later revision.
	place Place
}

// staleClaims returns the stale partitions of restored databases. It returns a partition only if
// the database to which the map assigns the partition also holds it.
func (m *placement) staleClaims(views []view) (claims []claim) {
	for _, v := range views {
		if v.err != nil || v.cluster != m.cluster || v.member != v.name {
			continue
		}
		for _, p := range v.held {
			if place := m.place(p); v.places[p].Revision < place.Revision && m.holds(views, place.Database, p) && place.Database != v.name && !m.wasSplit(p) {
				claims = append(claims, claim{v.name, p, place})
			}
		}
	}
	return claims
}

// holds reports whether the database `name` holds a partition, according to the database's view.
// The result is false if the database could not be read.
func (m *placement) holds(views []view, name string, partition int) bool {
	return slices.ContainsFunc(views, func(v view) bool {
		return v.name == name && v.err == nil && v.cluster == m.cluster && v.member == name && slices.Contains(v.held, partition)
	})
}

// staleInterval is how often a process looks for stale partitions that were released but whose
// events were not yet appended to the database that now holds the partition, because the process
// that made the release was killed.
const staleInterval = 10 * time.Second

// SettleRestored runs until ctx is done and then returns nil. It makes each restored database
// release the partitions that had moved to other databases after the time to which it was
// restored. It appends the events that were published to these stale partitions to the databases
// that hold the partitions now. Several processes may run SettleRestored at the same time.
func (c *Cluster) SettleRestored(ctx context.Context) error {
	var looked time.Time
	told := ""
	return wait.Repeat(ctx, c.cfg.Interval, func(ctx context.Context) {
		c.reloading.Lock()
		claims := c.claims
		c.reloading.Unlock()
		var errs []error
		for _, one := range claims {
			errs = append(errs, c.giveUp(ctx, one))
		}
		if len(claims) > 0 || time.Since(looked) > staleInterval {
			looked = time.Now()
			errs = append(errs, c.carryAll(ctx))
		}
		if len(claims) > 0 {
			_ = c.Reload(ctx) // Run reads the maps soon, too
		}
		err := errors.Join(errs...)
		if err != nil && ctx.Err() == nil && told != err.Error() {
			told = err.Error()
			c.cfg.Logger.WarnContext(ctx, "cannot settle the stale partitions of a restored shard; trying again", "error", err)
		}
	})
}

// giveUp makes a restored database release a stale partition, but only if the other database of
// the claim holds the partition. This does not disturb a move: in a move, the source has released
// the partition before the target holds it.
func (c *Cluster) giveUp(ctx context.Context, one claim) error {
	ctx, cancel := context.WithTimeout(ctx, 2*c.cfg.Patience)
	defer cancel()
	stale, owner := c.Database(one.shard), c.Database(one.place.Database)
	var since time.Time
	switch err := owner.Pool.QueryRow(ctx, statements.Get("since when does it hold the partition"), one.partition, owner.Name, one.place.Revision).Scan(&since); {
	case errors.Is(err, pgx.ErrNoRows):
		return nil // the partition has moved again
	case err != nil:
		return owner.Wrap(err)
	}
	var held bool
	if err := stale.Pool.QueryRow(ctx, statements.Get("give up a partition"), one.partition, owner.Name, one.place.Revision, since).Scan(&held); err != nil {
		return fmt.Errorf("make shard %s release partition %d: %w", stale.Name, one.partition, err)
	}
	if held {
		c.cfg.Logger.WarnContext(ctx, "a shard was restored to a time before a partition moved away, and has released the partition again; events published there meanwhile will be appended to the other shard",
			"shard", stale.Name, "partition", one.partition, "other", owner.Name)
	}
	return nil
}

// carryAll calls carry for each stale partition that a database has released (see giveUp): it
// appends the events of the partition to the database that holds the partition now.
func (c *Cluster) carryAll(ctx context.Context) error {
	var errs []error
	for _, s := range c.databases {
		if s.Err() != nil {
			continue
		}
		rows, _ := s.Pool.Query(ctx, statements.Get("list stale partitions"))
		partitions, err := pgx.CollectRows(rows, pgx.RowTo[int])
		errs = append(errs, s.Wrap(err))
		for _, p := range partitions {
			errs = append(errs, c.carry(ctx, s, p))
		}
	}
	return errors.Join(errs...)
}

// carry is called after the restored database `from` has released a stale partition. It appends the
// events that were published to this partition to the database that holds the partition now. If
// carry is interrupted, the next call may append the same rows again; a repeated event counts once.
func (c *Cluster) carry(ctx context.Context, from *Database, partition int) error {
	to := c.DatabaseOf(partition)
	if to == nil || to == from {
		return nil
	}
	if err := to.Err(); err != nil {
		return nil //nolint:nilerr // storeView has logged that the database is unavailable
	}
	n := 0
	err := pgx.BeginFunc(ctx, from.Pool, func(source pgx.Tx) error {
		var since time.Time
		switch err := source.QueryRow(ctx, statements.Get("take a stale partition"), partition).Scan(&since); {
		case errors.Is(err, pgx.ErrNoRows):
			return nil
		case err != nil:
			return err
		}
		if err := pgx.BeginFunc(ctx, to.Pool, func(target pgx.Tx) (err error) {
			n, err = appendRows(ctx, source, target, partition, since)
			return err
		}); err != nil {
			return err
		}
		_, err := source.Exec(ctx, statements.Get("settle a stale partition"), partition)
		return err
	})
	if err != nil {
		return fmt.Errorf("append the events published to partition %d on shard %s to shard %s: %w", partition, from.Name, to.Name, err)
	}
	if n > 0 {
		c.cfg.Logger.WarnContext(ctx, "appended events that were published to a partition on a restored shard to the shard that holds the partition; run badged partition move to delete the old rows",
			"shard", from.Name, "partition", partition, "to", to.Name, "rows", n)
	}
	return nil
}

// appendRows copies rows of a partition's log from the database `from` to the database `to`: the
// rows that were appended after the time `since` or in the minute before it, since the clocks of
// the databases may differ. It returns the number of copied rows.
func appendRows(ctx context.Context, from, to pgx.Tx, partition int, since time.Time) (n int, err error) {
	const limit, mostBytes = 200, 4 << 20
	var batch pgx.Batch
	size := 0
	flush := func() error {
		err := to.SendBatch(ctx, &batch).Close()
		batch, size = pgx.Batch{}, 0
		return err
	}
	var row struct {
		id         [16]byte
		payload    []byte
		metadata   *string
		events     int16
		own        bool
		appendedAt time.Time
	}
	insert := statements.Of(partition, "append a row")
	rows, _ := from.Query(ctx, statements.Of(partition, "rows of a stale partition"), since)
	if _, err := pgx.ForEachRow(rows, []any{&row.id, &row.payload, &row.metadata, &row.events, &row.own, &row.appendedAt}, func() error {
		batch.Queue(insert, row.id, slices.Clone(row.payload), row.metadata, row.events, row.own, row.appendedAt)
		n, size = n+1, size+len(row.payload)
		if batch.Len() < limit && size < mostBytes {
			return nil
		}
		return flush()
	}); err != nil {
		return 0, err
	}
	return n, flush()
}
