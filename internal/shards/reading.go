package shards

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/eventlog"
	"github.com/badged/badged/internal/limit"
	"github.com/badged/badged/internal/wait"
	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/pubsub"
)

// Reader reads badges from the shards of their users, as [badges.Reader] does from one
// database. A read of a partition that has moved follows it. It is safe for concurrent
// use.
type Reader struct {
	cluster *Cluster
	// of are by the index of the shard, and so are places, which Limited has.
	of     []*badges.Reader
	places []*limit.AtOnce[struct{}]
	// lanes bound the reads of each partition.
	lanes []*lanes
}

// NewReader returns a reader.
func NewReader(c *Cluster) *Reader {
	r := &Reader{cluster: c}
	for _, s := range c.shards {
		r.of = append(r.of, badges.NewReader(s.Pool, s.Log))
		r.lanes = append(r.lanes, newLanes(s.Pool.Config().MaxConns))
	}
	return r
}

// ErrBusy means that a read found no connection to its shard free for its kind.
var ErrBusy = errors.New("too many reads of this kind run at once")

// Limited returns a reader that takes at most one in oneIn of the connections to each shard,
// and at least one. A read that gets no connection in time fails with ErrBusy.
func (r *Reader) Limited(oneIn int, wait time.Duration) *Reader {
	limited := &Reader{cluster: r.cluster, of: r.of, lanes: r.lanes}
	for _, s := range r.cluster.shards {
		most := int(s.Pool.Config().MaxConns) / oneIn
		limited.places = append(limited.places, limit.NewAtOnce[struct{}](max(1, most), wait))
	}
	return limited
}

// reachable reads from a shard, as [Shard.reachable] does, within the limit.
func (r *Reader) reachable(ctx context.Context, s *Shard, read func(context.Context) error) error {
	return s.reachable(ctx, func(ctx context.Context) error {
		if r.places == nil {
			return read(ctx)
		}
		leave, ok := r.places[s.index].Enter(ctx, struct{}{})
		switch {
		case ctx.Err() != nil && !ok:
			return ctx.Err()
		case !ok:
			return ErrBusy
		}
		defer leave()
		return read(ctx)
	})
}

// on reads from the shard of a partition, and again where it has moved to or what it was
// split into. With check, it asks afterwards whether the shard held the partition: the read
// cannot tell.
func (r *Reader) on(ctx context.Context, partition func() int, check bool, read func(context.Context, *badges.Reader) error) error {
	for deadline := time.Now().Add(moveWait); ; {
		err := r.attempt(ctx, partition(), check, read)
		if !errors.Is(err, events.ErrNotHeld) || time.Now().After(deadline) {
			return err
		}
		if err := wait.For(ctx, movePause); err != nil {
			return err
		}
		_ = r.cluster.Reload(ctx) // if it fails, the last map stays
	}
}

func (r *Reader) attempt(ctx context.Context, partition int, check bool, read func(context.Context, *badges.Reader) error) error {
	st := r.cluster.state.Load()
	if err := r.cluster.holder(st, partition); err != nil {
		return err
	}
	s := r.cluster.shards[st.owner(partition)]
	// A place first: readers that wait for one must not take the turns of the partition.
	return r.reachable(ctx, s, func(ctx context.Context) error {
		return r.lanes[s.index].read(ctx, partition, func(ctx context.Context) error {
			err := read(ctx, r.of[s.index])
			if err == nil && check {
				var holds bool
				if holds, err = r.of[s.index].Holds(ctx, partition); err == nil && !holds {
					err = events.ErrNotHeld
				}
			}
			return err
		})
	})
}

func (r *Reader) partitionOf(userID string) func() int {
	return func() int { return r.cluster.PartitionOf(userID) }
}

// Badge is [badges.Reader.Badge].
func (r *Reader) Badge(ctx context.Context, userID string) (b pubsub.Badge, err error) {
	err = r.on(ctx, r.partitionOf(userID), false, func(ctx context.Context, from *badges.Reader) (err error) {
		b, err = from.Badge(ctx, userID)
		return err
	})
	return b, err
}

// Snapshot is [badges.Reader.Snapshot].
func (r *Reader) Snapshot(ctx context.Context, userID string) (s pubsub.Snapshot, err error) {
	err = r.on(ctx, r.partitionOf(userID), false, func(ctx context.Context, from *badges.Reader) (err error) {
		s, err = from.Snapshot(ctx, userID)
		return err
	})
	return s, err
}

// States is [badges.Reader.States].
func (r *Reader) States(ctx context.Context, partition int, held []pubsub.Held) (all []pubsub.Snapshot, err error) {
	err = r.on(ctx, func() int { return partition }, false, func(ctx context.Context, from *badges.Reader) (err error) {
		if !r.cluster.Layout().Lives(partition) { // maybe since the last attempt
			return errSplit
		}
		all, err = from.States(ctx, partition, held)
		return err
	})
	if err != nil && !r.cluster.Layout().Lives(partition) {
		return r.statesByUser(ctx, held)
	}
	return all, err
}

// errSplit means that a partition has no users any more.
var errSplit = errors.New("the partition was split")

// statesByUser reads the states of users of any partitions.
func (r *Reader) statesByUser(ctx context.Context, held []pubsub.Held) ([]pubsub.Snapshot, error) {
	users := make([]string, len(held))
	for i, h := range held {
		users[i] = h.UserID
	}
	all := make([]pubsub.Snapshot, len(held))
	err := r.each(ctx, users, func(ctx context.Context, _ *Shard, from *badges.Reader, _ []string, places []int) error {
		layout := r.cluster.Layout()
		byPartition := map[int][]int{}
		for _, i := range places {
			p := layout.PartitionOf(users[i])
			byPartition[p] = append(byPartition[p], i)
		}
		for p, places := range byPartition {
			some := make([]pubsub.Held, len(places))
			for j, i := range places {
				some[j] = held[i]
			}
			states, err := from.States(ctx, p, some)
			if err != nil {
				return err
			}
			for j, i := range places {
				all[i] = states[j]
			}
		}
		return nil
	})
	return all, err
}

// View is [badges.Reader.View].
func (r *Reader) View(ctx context.Context, userID string, categories []string) (s pubsub.Snapshot, err error) {
	err = r.on(ctx, r.partitionOf(userID), true, func(ctx context.Context, from *badges.Reader) (err error) {
		s, err = from.View(ctx, userID, categories)
		return err
	})
	return s, err
}

// Conversations is [badges.Reader.Conversations].
func (r *Reader) Conversations(ctx context.Context, userID string, f badges.Filter, limit int, cursor string) (page []pubsub.Conversation, next string, err error) {
	err = r.on(ctx, r.partitionOf(userID), true, func(ctx context.Context, from *badges.Reader) (err error) {
		page, next, err = from.Conversations(ctx, userID, f, limit, cursor)
		return err
	})
	return page, next, err
}

// Categories is [badges.Reader.Categories].
func (r *Reader) Categories(ctx context.Context, userID string, within []string, of string, limit int, cursor string) (page []badges.Category, next string, err error) {
	err = r.on(ctx, r.partitionOf(userID), true, func(ctx context.Context, from *badges.Reader) (err error) {
		page, next, err = from.Categories(ctx, userID, within, of, limit, cursor)
		return err
	})
	return page, next, err
}

// Conversation is [badges.Reader.Conversation].
func (r *Reader) Conversation(ctx context.Context, userID, conversationID string) (c pubsub.Conversation, err error) {
	err = r.on(ctx, r.partitionOf(userID), true, func(ctx context.Context, from *badges.Reader) (err error) {
		c, err = from.Conversation(ctx, userID, conversationID)
		return err
	})
	return c, err
}

// IsMember is [badges.Reader.IsMember].
func (r *Reader) IsMember(ctx context.Context, userID, conversationID string) (member bool, err error) {
	err = r.on(ctx, r.partitionOf(userID), true, func(ctx context.Context, from *badges.Reader) (err error) {
		member, err = from.IsMember(ctx, userID, conversationID)
		return err
	})
	return member, err
}

// Now returns the time on the clock of a database.
func (r *Reader) Now(ctx context.Context) (time.Time, error) {
	for i, s := range r.cluster.shards {
		if s.Err() == nil {
			return r.of[i].Now(ctx)
		}
	}
	return time.Time{}, r.cluster.shards[0].Err()
}

// Head returns a position for [Reader.Folded]: everything committed for a user until now
// is at or before it.
func (r *Reader) Head(ctx context.Context, userID string) (transactionID int64, err error) {
	err = r.on(ctx, r.partitionOf(userID), true, func(ctx context.Context, from *badges.Reader) (err error) {
		transactionID, err = from.Head(ctx, userID)
		return err
	})
	return transactionID, err
}

// Folded is [badges.Reader.Folded], for users of one shard.
func (r *Reader) Folded(ctx context.Context, userIDs []string, transactionID int64) (folded bool, err error) {
	err = r.on(ctx, r.partitionOf(userIDs[0]), true, func(ctx context.Context, from *badges.Reader) (err error) {
		folded, err = from.Folded(ctx, userIDs, transactionID)
		return err
	})
	return folded, err
}

// FoldedAt reports whether the badges of users include everything that was appended for
// them up to a position, as [events.Receipt.Position] names it. It returns
// [ErrBadPosition] if it is none.
//
// If a partition may have moved since, it compares with everything committed until now,
// and asks the shards of the position whether they still have it: events that a shard lost
// before the move are on no shard. It fails while one of them is away.
func (r *Reader) FoldedAt(ctx context.Context, userIDs []string, position string) (bool, error) {
	t, err := parseToken(position)
	if err != nil {
		return false, err
	}
	if !r.cluster.sharded {
		if len(t.positions)+len(t.hints) > 0 {
			return false, ErrBadPosition
		}
		var behind atomic.Bool
		err := r.each(ctx, userIDs, func(ctx context.Context, _ *Shard, from *badges.Reader, users []string, _ []int) error {
			layout := r.cluster.Layout()
			is, err := from.Folded(ctx, users, t.moves)
			if err == nil {
				if !is { // also of a partition that was split since: the next call asks others
					behind.Store(true)
				}
				return nil
			}
			if reload := r.cluster.Reload(ctx); reload == nil && !r.cluster.Layout().Equal(layout) {
				return events.ErrNotHeld // it was split, and its rows are gone
			}
			return err
		})
		return err == nil && !behind.Load(), err
	}
	moved := len(t.positions)+len(t.hints) == 0 || t.moves != r.cluster.moves() // a plain number is of one database
	if moved {
		if kept, err := r.survived(ctx, t); err != nil || !kept {
			return false, err
		}
	}
	var behind atomic.Bool
	err = r.each(ctx, userIDs, func(ctx context.Context, s *Shard, from *badges.Reader, users []string, _ []int) (err error) {
		hints := slices.DeleteFunc(slices.Clone(t.hints), func(h hintRef) bool { return !moved && h.shard != s.Name })
		if is, err := r.cluster.replayed(ctx, hints, s); err != nil || !is {
			behind.Store(true)
			return err
		}
		id, ok := t.positions[s.Name]
		switch {
		case moved || len(hints) > 0: // the events of hints were appended at some place before now
			if id, err = from.Head(ctx, ""); err != nil {
				return err
			}
		case !ok:
			return nil // nothing was appended there
		}
		is, err := from.Folded(ctx, users, id)
		if !is {
			behind.Store(true)
		}
		return err
	})
	return err == nil && !behind.Load(), err
}

// survived reports whether all shards of a position are known to have kept it.
func (r *Reader) survived(ctx context.Context, t token) (bool, error) {
	for name, id := range t.positions {
		s := r.cluster.Shard(name)
		if s == nil {
			continue // it has left the cluster, after all its partitions
		}
		if err := s.Err(); err != nil {
			return false, err
		}
		if kept, err := r.of[s.index].Survived(ctx, id); err != nil || !kept {
			return false, s.named(err)
		}
	}
	return true, nil
}

// Badges is [badges.Reader.Badges].
func (r *Reader) Badges(ctx context.Context, userIDs []string) ([]pubsub.Badge, error) {
	return r.gather(ctx, userIDs, (*badges.Reader).Badges)
}

// ShownBadges is [badges.Reader.ShownBadges].
func (r *Reader) ShownBadges(ctx context.Context, userIDs []string) ([]pubsub.Badge, error) {
	return r.gather(ctx, userIDs, (*badges.Reader).ShownBadges)
}

// Versions is [badges.Reader.Versions]. Users of a shard that is away have a badge
// without an epoch.
func (r *Reader) Versions(ctx context.Context, userIDs []string) ([]pubsub.Badge, error) {
	all, err := r.gather(ctx, userIDs, (*badges.Reader).Versions)
	if err != nil && slices.ContainsFunc(all, func(b pubsub.Badge) bool { return b.Epoch != "" }) {
		err = nil
	}
	return all, err
}

// Stored is [badges.Reader.Stored].
func (r *Reader) Stored(ctx context.Context, keys []badges.Key) ([]badges.Stored, error) {
	users := make([]string, len(keys))
	for i, k := range keys {
		users[i] = k.UserID
	}
	all := make([]badges.Stored, len(keys))
	err := r.each(ctx, users, func(ctx context.Context, s *Shard, from *badges.Reader, _ []string, places []int) error {
		some := make([]badges.Key, len(places))
		for i, place := range places {
			some[i] = keys[place]
		}
		stored, err := from.Stored(ctx, some)
		if err != nil {
			return err
		}
		held, err := eventlog.Held(ctx, s.Pool) // the read cannot tell
		if err != nil {
			return err
		}
		for i, k := range some {
			if !slices.Contains(held, r.cluster.PartitionOf(k.UserID)) {
				return events.ErrNotHeld
			}
			all[places[i]] = stored[i]
		}
		return nil
	})
	return all, err
}

// Analyze is [badges.Reader.Analyze] on all shards.
func (r *Reader) Analyze(ctx context.Context) error {
	for _, s := range r.cluster.shards {
		if err := s.reachable(ctx, r.of[s.index].Analyze); err != nil {
			return err
		}
	}
	return nil
}

// gather reads badges from all shards of users, and returns them in the order given.
// Those of shards that fail have no epoch.
func (r *Reader) gather(ctx context.Context, userIDs []string, read func(from *badges.Reader, ctx context.Context, userIDs []string) ([]pubsub.Badge, error)) ([]pubsub.Badge, error) {
	all := make([]pubsub.Badge, len(userIDs))
	for i, id := range userIDs {
		all[i].UserID = id
	}
	err := r.each(ctx, userIDs, func(ctx context.Context, _ *Shard, from *badges.Reader, users []string, places []int) error {
		some, err := read(from, ctx, users)
		for i, b := range some {
			all[places[i]] = b
		}
		return err
	})
	return all, err
}
