package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/badged/badged/internal/pg/pgfault"
)

const (
	// partitionShare limits the reads of one partition to 1/partitionShare of a pool's
	// connections. So other partitions can be read while the tables of this partition are
	// locked.
	partitionShare = 4
	// queueTimeout bounds how long a read waits for other reads of the partition.
	queueTimeout = 2 * time.Second
	// readTimeout bounds a read of a database that hangs. Waiting for a lock times out
	// earlier.
	readTimeout = 10 * time.Second
	// slowAfter is the time without a finished read after which a partition is slow. While a
	// partition is slow, a read of several partitions is divided into one read for each
	// partition.
	slowAfter = 500 * time.Millisecond
	// lockedFor is how long a partition counts as locked after a lock made a read fail.
	// Meanwhile one read at a time is tried, and other reads fail at once.
	lockedFor = 5 * time.Second
	// manyPartitions stands for reads of several partitions.
	manyPartitions = -1
)

// readLimits bounds the concurrent reads of each partition of a database. It is safe for concurrent
// use.
type readLimits struct {
	most int
	mu   sync.Mutex
	of   map[int]*partitionReads
}

// partitionReads counts the reads of one partition.
type partitionReads struct {
	slots chan struct{}

	mu sync.Mutex
	// reading counts the running reads. moved is when the reads last made progress: when a read
	// last ended, or last began while no other read was running. locked is when a lock last made
	// a read fail.
	reading       int
	moved, locked time.Time
}

func newReadLimits(conns int32) *readLimits {
	return &readLimits{most: max(2, int(conns)/partitionShare), of: map[int]*partitionReads{}}
}

func (l *readLimits) partition(number int) *partitionReads {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.of[number]
	if one == nil {
		one = &partitionReads{slots: make(chan struct{}, l.most)}
		l.of[number] = one
	}
	return one
}

// read waits until fewer than l.most reads of the partition are running, and then calls do. If a
// lock blocks do or the earlier reads for too long, the error is a [*pgfault.LockedError].
func (l *readLimits) read(ctx context.Context, partition int, do func(ctx context.Context) error) error {
	one := l.partition(partition)
	if err := one.acquire(ctx, partition); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	err := do(ctx)
	locked := pgfault.OfLock(err)
	one.release(err == nil, locked)
	if locked && partition != manyPartitions {
		return &pgfault.LockedError{Partition: partition, Err: err}
	}
	return err
}

func (l *partitionReads) acquire(ctx context.Context, partition int) error {
	if l.isLocked(1) {
		return &pgfault.LockedError{Partition: partition}
	}
	select {
	case l.slots <- struct{}{}:
	default:
		timer := time.NewTimer(queueTimeout)
		defer timer.Stop()
		select {
		case l.slots <- struct{}{}:
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

// release ends a read. answered means that the read succeeded, locked that a lock made it
// fail.
func (l *partitionReads) release(answered, locked bool) {
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
	<-l.slots
}

// isLocked reports whether the partition counts as locked and at least the given number of
// reads are running.
func (l *partitionReads) isLocked(reads int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reading >= reads && time.Since(l.locked) < lockedFor
}

// isSlow reports whether reads of the partition seem to be blocked.
func (l *partitionReads) isSlow() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reading > 0 && time.Since(l.moved) > slowAfter || time.Since(l.locked) < lockedFor
}

// anySlow reports whether reads of any single partition seem to be blocked.
func (l *readLimits) anySlow() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for partition, one := range l.of {
		if partition != manyPartitions && one.isSlow() {
			return true
		}
	}
	return false
}
