package cluster

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/pg/pgfault"
	"github.com/badged/badged/projector/badges"
)

// failure is the error of a read of some of the users of a call. places has the indexes of these
// users among all users of the call.
type failure struct {
	places []int
	err    error
}

// readFailure returns one error for all failures of a call, nil if there are no failures. With
// several databases, or if a partition is locked, the error is a [*PartialFailure].
func (c *Cluster) readFailure(userIDs []string, failed []failure) error {
	if len(failed) == 0 {
		return nil
	}
	var places []int
	var errs []error
	for _, f := range failed {
		places, errs = append(places, f.places...), append(errs, f.err)
	}
	if _, locked := errors.AsType[*pgfault.LockedError](errors.Join(errs...)); !c.several && !locked {
		return errors.Join(errs...)
	}
	slices.Sort(places)
	e := &PartialFailure{Partitions: make([]bool, c.partitions), Err: errors.Join(errs...)}
	for _, i := range places {
		e.UserIDs = append(e.UserIDs, userIDs[i])
		e.Partitions[c.Route(userIDs[i])] = true
	}
	return e
}

// readAll reads users from their databases in parallel. If the partition of a user has moved, it
// reads this user again, for up to moveWait. If reads fail, it returns the error of
// [Cluster.readFailure].
func (r *Reader) readAll(ctx context.Context, userIDs []string, read readSome) error {
	left := make([]int, len(userIDs))
	for i := range left {
		left[i] = i
	}
	var failed []failure
	for deadline := time.Now().Add(moveWait); ; {
		var now []failure
		left, now = r.eachOnce(ctx, userIDs, left, read)
		if failed = append(failed, now...); len(left) == 0 {
			return r.cluster.readFailure(userIDs, failed)
		}
		if time.Now().After(deadline) {
			return r.cluster.readFailure(userIDs, append(failed, failure{left, events.ErrNotHeld}))
		}
		if err := wait.For(ctx, movePause); err != nil {
			return err
		}
		_ = r.cluster.Reload(ctx) // on failure the last map stays in use
	}
}

// readSome reads users from one database. places[i] is the index of users[i] among all users of the
// call.
type readSome func(ctx context.Context, s *Database, from *badges.Reader, users []string, places []int) error

// eachOnce reads the users with the given indexes. The result `left` has the indexes of the users
// whose partition has moved: the caller must read them again.
func (r *Reader) eachOnce(ctx context.Context, userIDs []string, indexes []int, read readSome) (left []int, failed []failure) {
	st := r.cluster.state.Load()
	places := make([][]int, len(r.readers))
	lost := map[int]*failure{} // by the index of the database
	for _, i := range indexes {
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
	for i, s := range r.cluster.databases {
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

// onShard reads the users with the indexes in places from one database, and returns the failures.
// It calls read once for all users. If reads of a partition seem to be blocked, or if this call
// fails because of a lock, it calls read once for each partition instead.
func (r *Reader) onShard(ctx context.Context, s *Database, userIDs []string, places []int, partitionOf func(string) int, read readSome) (failed []failure) {
	by := map[int][]int{} // indexes of users by partition
	for _, i := range places {
		p := partitionOf(userIDs[i])
		by[p] = append(by[p], i)
	}
	limits := r.limits[s.index]
	some := func(partition int, places []int) error {
		users := make([]string, len(places))
		for j, place := range places {
			users[j] = userIDs[place]
		}
		return r.reachable(ctx, s, func(ctx context.Context) error {
			return limits.read(ctx, partition, func(ctx context.Context) error { return read(ctx, s, r.readers[s.index], users, places) })
		})
	}
	if len(by) > 1 && !limits.anySlow() {
		err := some(manyPartitions, places)
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
