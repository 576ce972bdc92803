package shards

import (
	"context"
	"sync"
	"time"

	"github.com/badged/badged/internal/pgfault"
)

const (
	// laneShare is the part of a pool's connections that reads of one partition use at most,
	// so that those of others find some while its tables are locked.
	laneShare = 4
	// lanePatience is how long a read waits for others of its partition.
	lanePatience = 2 * time.Second
	// readPatience bounds a read in a database that has stopped: locks end one before.
	readPatience = 10 * time.Second
	// slowLane is after how long without an answer from one partition those of several are
	// read by themselves.
	slowLane = 500 * time.Millisecond
	// lockedFor is for how long a partition counts as locked after one of its reads failed
	// because of a lock. Meanwhile one read at a time tries, and others fail at once.
	lockedFor = 5 * time.Second
	// severalPartitions is the lane of reads of more than one.
	severalPartitions = -1
)

// lanes bounds how many reads of each partition of a database are under way. It is safe for
// concurrent use.
type lanes struct {
	most int
	mu   sync.Mutex
	of   map[int]*lane
}

// lane are the reads of one partition.
type lane struct {
	turns chan struct{}

	mu sync.Mutex
	// reading is how many are under way, moved when one last ended or began alone, and
	// locked when one last failed because of a lock.
	reading       int
	moved, locked time.Time
}

func newLanes(conns int32) *lanes {
	return &lanes{most: max(2, int(conns)/laneShare), of: map[int]*lane{}}
}

func (l *lanes) lane(partition int) *lane {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.of[partition]
	if one == nil {
		one = &lane{turns: make(chan struct{}, l.most)}
		l.of[partition] = one
	}
	return one
}

// read calls do once few enough others read the partition. If that waits for a lock for too
// long, or behind others that do, the error is a [*pgfault.LockedError].
func (l *lanes) read(ctx context.Context, partition int, do func(ctx context.Context) error) error {
	one := l.lane(partition)
	if err := one.enter(ctx, partition); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	err := do(ctx)
	locked := pgfault.OfLock(err)
	one.leave(err == nil, locked)
	if locked && partition != severalPartitions {
		return &pgfault.LockedError{Partition: partition, Err: err}
	}
	return err
}

func (l *lane) enter(ctx context.Context, partition int) error {
	if l.isLocked(1) {
		return &pgfault.LockedError{Partition: partition}
	}
	select {
	case l.turns <- struct{}{}:
	default:
		timer := time.NewTimer(lanePatience)
		defer timer.Stop()
		select {
		case l.turns <- struct{}{}:
		case <-timer.C:
			return &pgfault.LockedError{Partition: partition}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reading == 0 {
		l.moved = time.Now()
	}
	l.reading++
	return nil
}

// leave ends a read that was answered, or has waited for a lock for too long.
func (l *lane) leave(answered, locked bool) {
	l.mu.Lock()
	l.reading--
	l.moved = time.Now()
	switch {
	case locked:
		l.locked = l.moved
	case answered:
		l.locked = time.Time{}
	}
	l.mu.Unlock()
	<-l.turns
}

// isLocked reports whether the partition counts as locked, and that number of reads try it.
func (l *lane) isLocked(reads int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reading >= reads && time.Since(l.locked) < lockedFor
}

// isSlow reports whether reads of the partition wait for something, as it seems.
func (l *lane) isSlow() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reading > 0 && time.Since(l.moved) > slowLane || time.Since(l.locked) < lockedFor
}

// areSlow reports whether reads of any partition wait.
func (l *lanes) areSlow() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for partition, one := range l.of {
		if partition != severalPartitions && one.isSlow() {
			return true
		}
	}
	return false
}
