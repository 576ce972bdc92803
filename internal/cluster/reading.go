package cluster

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/limit"
	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/pubsub"
)

// Reader has the methods of [badges.Reader], and reads each user from the database that holds the
// user. If a partition moves during a read, the Reader repeats the read on the new database. It
// is safe for concurrent use.
type Reader struct {
	cluster *Cluster
	// readers[i] reads database i. places[i] limits the concurrent reads of database i; places is
	// nil unless Limited set it.
	readers []*badges.Reader
	places  []*limit.AtOnce[struct{}]
	// limits[i] limits the concurrent reads of each partition in database i.
	limits []*readLimits
}

// NewReader returns a reader.
func NewReader(c *Cluster) *Reader {
	r := &Reader{cluster: c}
	for _, s := range c.databases {
		r.readers = append(r.readers, badges.NewReader(s.Pool, s.Log))
		r.limits = append(r.limits, newReadLimits(s.Pool.Config().MaxConns))
	}
	return r
}

// ErrBusy means that a read waited too long until other reads of the same limited reader ended (see
// [Reader.Limited]).
var ErrBusy = errors.New("too many reads of this kind run at once")

// Limited returns a reader that runs at most n reads of a database at the same time: n is 1/oneIn
// of the connections in the pool of the database, but at least 1. If a read waits longer than
// `wait` for its start, it fails with ErrBusy.
func (r *Reader) Limited(oneIn int, wait time.Duration) *Reader {
	limited := &Reader{cluster: r.cluster, readers: r.readers, limits: r.limits}
	for _, s := range r.cluster.databases {
		most := int(s.Pool.Config().MaxConns) / oneIn
		limited.places = append(limited.places, limit.NewAtOnce[struct{}](max(1, most), wait))
	}
	return limited
}

// reachable calls [Database.reachable] within the limit of the reader.
func (r *Reader) reachable(ctx context.Context, s *Database, read func(context.Context) error) error {
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

// withReader calls read with the reader of the database that holds a partition. If the partition
// was moved or split, withReader reloads the map and calls read again, for up to moveWait. If check
// is true, it verifies after the read that the database holds the partition. Set check unless read
// verifies this itself.
func (r *Reader) withReader(ctx context.Context, partition func() int, check bool, read func(context.Context, *badges.Reader) error) error {
	for deadline := time.Now().Add(moveWait); ; {
		err := r.attempt(ctx, partition(), check, read)
		if !errors.Is(err, events.ErrNotHeld) || time.Now().After(deadline) {
			return err
		}
		if err := wait.For(ctx, movePause); err != nil {
			return err
		}
		_ = r.cluster.Reload(ctx) // on failure the last map stays in use
	}
}

func (r *Reader) attempt(ctx context.Context, partition int, check bool, read func(context.Context, *badges.Reader) error) error {
	st := r.cluster.state.Load()
	if err := r.cluster.holder(st, partition); err != nil {
		return err
	}
	s := r.cluster.databases[st.owner(partition)]
	// Acquire a slot of r.places first, in r.reachable, and then a slot of the partition, in
	// r.limits: a read that waits for a slot of r.places must not occupy a slot of the partition.
	return r.reachable(ctx, s, func(ctx context.Context) error {
		return r.limits[s.index].read(ctx, partition, func(ctx context.Context) error {
			err := read(ctx, r.readers[s.index])
			if err == nil && check {
				var holds bool
				if holds, err = r.readers[s.index].Holds(ctx, partition); err == nil && !holds {
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
	err = r.withReader(ctx, r.partitionOf(userID), false, func(ctx context.Context, from *badges.Reader) (err error) {
		b, err = from.Badge(ctx, userID)
		return err
	})
	return b, err
}

// Snapshot is [badges.Reader.Snapshot].
func (r *Reader) Snapshot(ctx context.Context, userID string) (s pubsub.Snapshot, err error) {
	err = r.withReader(ctx, r.partitionOf(userID), false, func(ctx context.Context, from *badges.Reader) (err error) {
		s, err = from.Snapshot(ctx, userID)
		return err
	})
	return s, err
}

// States is [badges.Reader.States].
func (r *Reader) States(ctx context.Context, partition int, held []pubsub.Held) (all []pubsub.Snapshot, err error) {
	err = r.withReader(ctx, func() int { return partition }, false, func(ctx context.Context, from *badges.Reader) (err error) {
		if !r.cluster.Layout().Lives(partition) { // the partition may have been split since the last attempt
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

// errSplit means that a partition was split: its users now belong to other partitions.
var errSplit = errors.New("the partition was split")

// statesByUser reads the states of users that may belong to different partitions.
func (r *Reader) statesByUser(ctx context.Context, held []pubsub.Held) ([]pubsub.Snapshot, error) {
	users := make([]string, len(held))
	for i, h := range held {
		users[i] = h.UserID
	}
	all := make([]pubsub.Snapshot, len(held))
	err := r.readAll(ctx, users, func(ctx context.Context, _ *Database, from *badges.Reader, _ []string, places []int) error {
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
	err = r.withReader(ctx, r.partitionOf(userID), true, func(ctx context.Context, from *badges.Reader) (err error) {
		s, err = from.View(ctx, userID, categories)
		return err
	})
	return s, err
}

// Conversations is [badges.Reader.Conversations].
func (r *Reader) Conversations(ctx context.Context, userID string, f badges.Filter, limit int, cursor string) (page []pubsub.Conversation, next string, err error) {
	err = r.withReader(ctx, r.partitionOf(userID), true, func(ctx context.Context, from *badges.Reader) (err error) {
		page, next, err = from.Conversations(ctx, userID, f, limit, cursor)
		return err
	})
	return page, next, err
}

// Categories is [badges.Reader.Categories].
func (r *Reader) Categories(ctx context.Context, userID string, within []string, parent string, limit int, cursor string) (page []badges.Category, next string, err error) {
	err = r.withReader(ctx, r.partitionOf(userID), true, func(ctx context.Context, from *badges.Reader) (err error) {
		page, next, err = from.Categories(ctx, userID, within, parent, limit, cursor)
		return err
	})
	return page, next, err
}

// Conversation is [badges.Reader.Conversation].
func (r *Reader) Conversation(ctx context.Context, userID, conversationID string) (c pubsub.Conversation, err error) {
	err = r.withReader(ctx, r.partitionOf(userID), true, func(ctx context.Context, from *badges.Reader) (err error) {
		c, err = from.Conversation(ctx, userID, conversationID)
		return err
	})
	return c, err
}

// IsMember is [badges.Reader.IsMember].
func (r *Reader) IsMember(ctx context.Context, userID, conversationID string) (member bool, err error) {
	err = r.withReader(ctx, r.partitionOf(userID), true, func(ctx context.Context, from *badges.Reader) (err error) {
		member, err = from.IsMember(ctx, userID, conversationID)
		return err
	})
	return member, err
}

// Now returns the time on the clock of the first reachable database.
func (r *Reader) Now(ctx context.Context) (time.Time, error) {
	for i, s := range r.cluster.databases {
		if s.Err() == nil {
			return r.readers[i].Now(ctx)
		}
	}
	return time.Time{}, r.cluster.databases[0].Err()
}

// Head returns a transaction id for [Reader.Folded]. When Folded reports true for this id, the
// badge of the user includes all events that were committed before the call of Head.
func (r *Reader) Head(ctx context.Context, userID string) (transactionID int64, err error) {
	err = r.withReader(ctx, r.partitionOf(userID), true, func(ctx context.Context, from *badges.Reader) (err error) {
		transactionID, err = from.Head(ctx, userID)
		return err
	})
	return transactionID, err
}

// Folded is [badges.Reader.Folded]. All users must belong to one partition.
func (r *Reader) Folded(ctx context.Context, userIDs []string, transactionID int64) (folded bool, err error) {
	err = r.withReader(ctx, r.partitionOf(userIDs[0]), true, func(ctx context.Context, from *badges.Reader) (err error) {
		folded, err = from.Folded(ctx, userIDs, transactionID)
		return err
	})
	return folded, err
}

// FoldedAt reports whether the badges of users include all events that were appended for them up
// to a position. position is the text of [events.Receipt.Position]; FoldedAt returns
// [ErrBadPosition] if the text is not a position.
//
// If a partition may have moved since the append that returned the position, FoldedAt reports true
// only if all events that were committed before the call are folded. It then also checks that each
// database in the position still has the events up to the position: a database that was restored to
// an earlier time may have lost them. While a database of the position is unavailable, this check
// fails with an error.
func (r *Reader) FoldedAt(ctx context.Context, userIDs []string, position string) (bool, error) {
	t, err := parseToken(position)
	if err != nil {
		return false, err
	}
	if !r.cluster.several {
		if len(t.positions)+len(t.hints) > 0 {
			return false, ErrBadPosition
		}
		var behind atomic.Bool
		err := r.readAll(ctx, userIDs, func(ctx context.Context, _ *Database, from *badges.Reader, users []string, _ []int) error {
			layout := r.cluster.Layout()
			is, err := from.Folded(ctx, users, t.moves)
			if err == nil {
				if !is { // if the partition was split meanwhile, the next call of FoldedAt reads the new partitions
					behind.Store(true)
				}
				return nil
			}
			if reload := r.cluster.Reload(ctx); reload == nil && !r.cluster.Layout().Equal(layout) {
				return events.ErrNotHeld // the partition was split, and the split has deleted its rows
			}
			return err
		})
		return err == nil && !behind.Load(), err
	}
	moved := len(t.positions)+len(t.hints) == 0 || t.moves != r.cluster.moves() // without positions and hints, the text is a plain number: the position of a single database, which later became a cluster
	if moved {
		if kept, err := r.survived(ctx, t); err != nil || !kept {
			return false, err
		}
	}
	var behind atomic.Bool
	err = r.readAll(ctx, userIDs, func(ctx context.Context, s *Database, from *badges.Reader, users []string, _ []int) (err error) {
		hints := slices.DeleteFunc(slices.Clone(t.hints), func(h hintRef) bool { return !moved && h.database != s.Name })
		if is, err := r.cluster.replayed(ctx, hints, s); err != nil || !is {
			behind.Store(true)
			return err
		}
		id, ok := t.positions[s.Name]
		switch {
		case moved || len(hints) > 0: // the events of hints were appended before now, at unknown positions
			if id, err = from.Head(ctx, ""); err != nil {
				return err
			}
		case !ok:
			return nil // the append had no events for this database
		}
		is, err := from.Folded(ctx, users, id)
		if !is {
			behind.Store(true)
		}
		return err
	})
	return err == nil && !behind.Load(), err
}

// survived reports whether every database of a position still has the events of the position.
func (r *Reader) survived(ctx context.Context, t token) (bool, error) {
	for name, id := range t.positions {
		s := r.cluster.Database(name)
		if s == nil {
			continue // the database was removed from the cluster, after its partitions had moved to others
		}
		if err := s.Err(); err != nil {
			return false, err
		}
		if kept, err := r.readers[s.index].Survived(ctx, id); err != nil || !kept {
			return false, s.Wrap(err)
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

// Versions is [badges.Reader.Versions]. If the database of a user is unavailable, the user's badge
// in the result has no epoch. Versions fails only if no badge could be read.
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
	err := r.readAll(ctx, users, func(ctx context.Context, s *Database, from *badges.Reader, _ []string, places []int) error {
		some := make([]badges.Key, len(places))
		for i, place := range places {
			some[i] = keys[place]
		}
		stored, err := from.Stored(ctx, some)
		if err != nil {
			return err
		}
		held, err := eventlog.Held(ctx, s.Pool) // from.Stored does not detect that a partition has moved
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

// Analyze is [badges.Reader.Analyze] on all databases.
func (r *Reader) Analyze(ctx context.Context) error {
	for _, s := range r.cluster.databases {
		if err := s.reachable(ctx, r.readers[s.index].Analyze); err != nil {
			return err
		}
	}
	return nil
}

// gather reads the badges of users from their databases and returns the badges in the order of
// userIDs. If the read of a database fails, the badges of its users have no epoch.
func (r *Reader) gather(ctx context.Context, userIDs []string, read func(from *badges.Reader, ctx context.Context, userIDs []string) ([]pubsub.Badge, error)) ([]pubsub.Badge, error) {
	all := make([]pubsub.Badge, len(userIDs))
	for i, id := range userIDs {
		all[i].UserID = id
	}
	err := r.readAll(ctx, userIDs, func(ctx context.Context, _ *Database, from *badges.Reader, users []string, places []int) error {
		some, err := read(from, ctx, users)
		for i, b := range some {
			all[places[i]] = b
		}
		return err
	})
	return all, err
}
