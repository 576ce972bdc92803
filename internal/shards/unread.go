package shards

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/pgfault"
	"github.com/badged/badged/internal/wait"
	"github.com/badged/badged/projector/badges"
)

// PartialReadError is returned by a read of several users that failed for some of them, such as
// while a shard is away or a partition is locked. The badges of the others are returned with it.
type PartialReadError struct {
	// UserIDs are the users that were not read, in the order of the call.
	UserIDs []string
	// Partitions are the partitions of these users in ascending order, by [Cluster.Route]. Of
	// is the number of all partitions.
	Partitions []int
	Of         int
	// Err is why; it names the shards or partitions.
	Err error
}

// Error implements error.
func (e *PartialReadError) Error() string {
	return fmt.Sprintf("%d users cannot be read: %v", len(e.UserIDs), e.Err)
}

// Unwrap returns why.
func (e *PartialReadError) Unwrap() error { return e.Err }

// Add returns the union of both. Either may be nil.
func (e *PartialReadError) Add(other *PartialReadError) *PartialReadError {
	switch {
	case e == nil:
		return other
	case other == nil:
		return e
	}
	return &PartialReadError{
		UserIDs:    slices.Concat(e.UserIDs, other.UserIDs),
		Partitions: slices.Compact(slices.Sorted(slices.Values(slices.Concat(e.Partitions, other.Partitions)))),
		Of:         e.Of, Err: errors.Join(e.Err, other.Err),
	}
}

// Without returns users except those that were not read.
func (e *PartialReadError) Without(userIDs []string) []string {
	if e == nil {
		return userIDs
	}
	unread := make(map[string]bool, len(e.UserIDs))
	for _, id := range e.UserIDs {
		unread[id] = true
	}
	return slices.DeleteFunc(slices.Clone(userIDs), func(id string) bool { return unread[id] })
}

// failure is an error of the read of some users. places are their indexes.
type failure struct {
	places []int
	err    error
}

// unread returns the error of reads of users that failed for some, nil if none did.
func (c *Cluster) unread(userIDs []string, failed []failure) error {
	if len(failed) == 0 {
		return nil
	}
	var places []int
	var errs []error
	for _, f := range failed {
		places, errs = append(places, f.places...), append(errs, f.err)
	}
	if _, locked := errors.AsType[*pgfault.LockedError](errors.Join(errs...)); !c.sharded && !locked {
		return errors.Join(errs...)
	}
	slices.Sort(places)
	e := &PartialReadError{Of: c.partitions, Err: errors.Join(errs...)}
	for _, i := range places {
		e.UserIDs = append(e.UserIDs, userIDs[i])
		e.Partitions = append(e.Partitions, c.Route(userIDs[i]))
	}
	slices.Sort(e.Partitions)
	e.Partitions = slices.Compact(e.Partitions)
	return e
}

// each reads users from their shards at the same time, and again users whose partition has moved
// meanwhile. If it fails for some users, the error is a [*PartialReadError].
func (r *Reader) each(ctx context.Context, userIDs []string, read readSome) error {
	left := make([]int, len(userIDs))
	for i := range left {
		left[i] = i
	}
	var failed []failure
	for deadline := time.Now().Add(moveWait); ; {
		var now []failure
		left, now = r.eachOnce(ctx, userIDs, left, read)
		if failed = append(failed, now...); len(left) == 0 {
			return r.cluster.unread(userIDs, failed)
		}
		if time.Now().After(deadline) {
			return r.cluster.unread(userIDs, append(failed, failure{left, events.ErrNotHeld}))
		}
		if err := wait.For(ctx, movePause); err != nil {
			return err
		}
		_ = r.cluster.Reload(ctx) // if it fails, the last map stays
	}
}

// readSome reads users from a shard. places are their indexes among all users.
type readSome func(ctx context.Context, s *Shard, from *badges.Reader, users []string, places []int) error

// eachOnce reads the users with some indexes, and returns the indexes of users whose partitions
// have moved.
func (r *Reader) eachOnce(ctx context.Context, userIDs []string, some []int, read readSome) (left []int, failed []failure) {
	st := r.cluster.state.Load()
	places := make([][]int, len(r.of))
	lost := map[int]*failure{} // by shard
	for _, i := range some {
		partition := st.layout.PartitionOf(userIDs[i])
		owner := st.owner(partition)
		if err := r.cluster.holder(st, partition); err != nil {
			if lost[owner] == nil {
				lost[owner] = &failure{err: err}
			}
			lost[owner].places = append(lost[owner].places, i)
			continue
		}
		places[owner] = append(places[owner], i)
	}
	for _, f := range lost {
		failed = append(failed, *f)
	}
	var mu sync.Mutex
	var g sync.WaitGroup
	for i, s := range r.cluster.shards {
		if len(places[i]) == 0 {
			continue
		}
		g.Go(func() {
			for _, f := range r.onShard(ctx, s, userIDs, places[i], st.layout.PartitionOf, read) {
				mu.Lock()
				if errors.Is(f.err, events.ErrNotHeld) {
					left = append(left, f.places...)
				} else {
					failed = append(failed, f)
				}
				mu.Unlock()
			}
		})
	}
	g.Wait()
	return left, failed
}

// onShard reads the users with some indexes from a shard: together, or one partition at a time
// while one of the partitions is locked. It returns what failed.
func (r *Reader) onShard(ctx context.Context, s *Shard, userIDs []string, places []int, partitionOf func(string) int, read readSome) (failed []failure) {
	by := map[int][]int{} // places by partition
	for _, i := range places {
		p := partitionOf(userIDs[i])
		by[p] = append(by[p], i)
	}
	lanes := r.lanes[s.index]
	some := func(lane int, places []int) error {
		users := make([]string, len(places))
		for j, place := range places {
			users[j] = userIDs[place]
		}
		return r.reachable(ctx, s, func(ctx context.Context) error {
			return lanes.read(ctx, lane, func(ctx context.Context) error { return read(ctx, s, r.of[s.index], users, places) })
		})
	}
	if len(by) > 1 && !lanes.areSlow() {
		err := some(severalPartitions, places)
		if err == nil {
			return nil
		}
		if _, locked := errors.AsType[*pgfault.LockedError](err); !locked && !pgfault.OfLock(err) {
			return []failure{{places, err}}
		}
	}
	var mu sync.Mutex
	var g sync.WaitGroup
	for p, places := range by {
		g.Go(func() {
			if err := some(p, places); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, failure{places, err})
			}
		})
	}
	g.Wait()
	return failed
}
