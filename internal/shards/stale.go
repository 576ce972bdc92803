package shards

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/wait"
)

// A shard that was restored from before it gave a partition away holds it again. Servers go by the
// map, so only publishers that use the database directly can append there. Once a server sees
// that another shard holds the partition at a later revision, it makes the stale shard give the
// partition up, and appends to the other shard the events that were published meanwhile.

// claim is a partition that a shard holds although another holds it since a later revision.
type claim struct {
	shard     string
	partition int
	// place is the place of the partition on the other shard.
	place Place
}

// staleClaims returns the claims of restored shards. The other shards hold the partitions that the
// map gives to them.
func (m *placement) staleClaims(views []view) (claims []claim) {
	for _, v := range views {
		if v.err != nil || v.cluster != m.cluster || v.member != v.name {
			continue
		}
		for _, p := range v.held {
			if place := m.place(p); v.places[p].Revision < place.Revision && m.holds(views, place.Shard, p) && place.Shard != v.name && !m.begun(p) {
				claims = append(claims, claim{v.name, p, place})
			}
		}
	}
	return claims
}

// holds reports whether a shard that could be read holds a partition.
func (m *placement) holds(views []view, name string, partition int) bool {
	return slices.ContainsFunc(views, func(v view) bool {
		return v.name == name && v.err == nil && v.cluster == m.cluster && v.member == name && slices.Contains(v.held, partition)
	})
}

// staleInterval is how often a process looks for the unfinished work of killed processes.
const staleInterval = 10 * time.Second

// SettleRestored makes restored shards give up the partitions that have moved since, and appends
// the events that were published there meanwhile to the shards that hold them, until ctx is done.
// Then it returns nil. Every process may run it.
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
			c.cfg.Logger.WarnContext(ctx, "cannot settle what a shard holds that was restored; trying again", "error", err)
		}
	})
}

// giveUp makes a shard give up a partition. It asks the other first: while a partition
// moves, the source has released it before the target holds it.
func (c *Cluster) giveUp(ctx context.Context, one claim) error {
	ctx, cancel := context.WithTimeout(ctx, 2*c.cfg.Patience)
	defer cancel()
	stale, owner := c.Shard(one.shard), c.Shard(one.place.Shard)
	var since time.Time
	switch err := owner.Pool.QueryRow(ctx, statements.Get("since when does it hold the partition"), one.partition, owner.Name, one.place.Revision).Scan(&since); {
	case errors.Is(err, pgx.ErrNoRows):
		return nil // it has moved on
	case err != nil:
		return owner.named(err)
	}
	var held bool
	if err := stale.Pool.QueryRow(ctx, statements.Get("give up a partition"), one.partition, owner.Name, one.place.Revision, since).Scan(&held); err != nil {
		return fmt.Errorf("make shard %s give up partition %d: %w", stale.Name, one.partition, err)
	}
	if held {
		c.cfg.Logger.WarnContext(ctx, "a shard was restored from before it gave a partition away, and has given it up again; what was published there meanwhile goes to the other shard",
			"shard", stale.Name, "partition", one.partition, "other", owner.Name)
	}
	return nil
}

// carryAll appends the last events of all partitions that were given up to their holders.
func (c *Cluster) carryAll(ctx context.Context) error {
	var errs []error
	for _, s := range c.shards {
		if s.Err() != nil {
			continue
		}
		rows, _ := s.Pool.Query(ctx, statements.Get("list stale partitions"))
		partitions, err := pgx.CollectRows(rows, pgx.RowTo[int])
		errs = append(errs, s.named(err))
		for _, p := range partitions {
			errs = append(errs, c.carry(ctx, s, p))
		}
	}
	return errors.Join(errs...)
}

// carry appends the last rows of a partition that a shard has given up on the shard that has
// it now. If it is interrupted, they are appended again, which counts once.
func (c *Cluster) carry(ctx context.Context, from *Shard, partition int) error {
	to := c.ShardOf(partition)
	if to == nil || to == from {
		return nil
	}
	if err := to.Err(); err != nil {
		return nil //nolint:nilerr // it is told that the shard is away
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
		return fmt.Errorf("carry what was published to partition %d on shard %s to shard %s: %w", partition, from.Name, to.Name, err)
	}
	if n > 0 {
		c.cfg.Logger.WarnContext(ctx, "carried what was published to a partition on a shard that was restored to the shard that has it; run badged partition move to delete the old rows",
			"shard", from.Name, "partition", partition, "to", to.Name, "rows", n)
	}
	return nil
}

// appendRows appends rows of the log of one database to that of another, and returns how
// many.
func appendRows(ctx context.Context, from, to pgx.Tx, partition int, since time.Time) (n int, err error) {
	const most, mostBytes = 200, 4 << 20
	var batch pgx.Batch
	size := 0
	flush := func() error {
		err := to.SendBatch(ctx, &batch).Close()
		batch, size = pgx.Batch{}, 0
		return err
	}
	var row struct {
		id       [16]byte
		payload  []byte
		metadata *string
		events   int16
		own      bool
		at       time.Time
	}
	insert := statements.Of(partition, "append a row")
	rows, _ := from.Query(ctx, statements.Of(partition, "rows of a stale partition"), since)
	if _, err := pgx.ForEachRow(rows, []any{&row.id, &row.payload, &row.metadata, &row.events, &row.own, &row.at}, func() error {
		batch.Queue(insert, row.id, slices.Clone(row.payload), row.metadata, row.events, row.own, row.at)
		n, size = n+1, size+len(row.payload)
		if batch.Len() < most && size < mostBytes {
			return nil
		}
		return flush()
	}); err != nil {
		return 0, err
	}
	return n, flush()
}
