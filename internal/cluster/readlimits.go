package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/badged/badged/internal/pg/pgfault"
)

const (
	// partitionShare limits the concurrent reads of one partition to 1/partitionShare of the
	// connections in a pool, but at least 2. If locks on the tables of one partition block its
	// reads, the remaining connections are free for other partitions.
	partitionShare = 4
	// queueTimeout limits how long a read waits until earlier reads of the same partition end.
	queueTimeout = 2 * time.Second
	// readTimeout limits the duration of a read, for a database that hangs. A read that waits for
	// a lock fails earlier, because of the setting lock_timeout.
	readTimeout = 10 * time.Second
	// slowAfter is the time after which a partition counts as slow if reads of it are running and
	// none has ended. While a partition is slow, a read of several partitions is divided into one
	// read for each partition.
	slowAfter = 500 * time.Millisecond
	// lockedFor is how long a partition counts as locked after a read failed because of a lock.
	// During this time one read at a time is allowed; while it runs, other reads fail at once.
	lockedFor = 5 * time.Second
	// manyPartitions is used as the partition number of a read of several partitions.
	manyPartitions = -1
)

// readLimits permits at most limit concurrent reads of each partition of a database. It is safe
// for concurrent use.
type readLimits struct {
	limit       int
	mu          sync.Mutex
	byPartition map[int]*partitionReads
}

// partitionReads counts the reads of one partition.
type partitionReads struct {
	slots chan struct{}

	mu sync.Mutex
	// reading is the number of running reads. moved is the time of the last progress: a read
	// ended, or a read began while no other read was running. locked is the time when a read last
	// failed because of a lock; a successful read resets it to zero.
	reading       int
	moved, locked time.Time
}

func newReadLimits(conns int32) *readLimits {
	return &readLimits{limit: max(2, int(conns)/partitionShare), byPartition: map[int]*partitionReads{}}
}

func (l *readLimits) partition(number int) *partitionReads {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.byPartition[number]
	if one == nil {
		one = &partitionReads{slots: make(chan struct{}, l.limit)}
		l.byPartition[number] = one
	}
	return one
}

// read waits until fewer than l.limit reads of the partition are running, and then calls the
// function do. The error is a [*pgfault.LockedError] if read waits longer than queueTimeout, if the
// partition counts as locked and another read is running, or if do fails because of a lock. If
// partition is manyPartitions, read returns an error of do unchanged.
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

// release records the end of a read and frees its slot. answered is true if the read succeeded,
// locked if it failed because of a lock.
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

// isSlow reports whether reads of the partition seem to be blocked: reads are running and none
// has ended for slowAfter, or the partition counts as locked.
func (l *partitionReads) isSlow() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reading > 0 && time.Since(l.moved) > slowAfter || time.Since(l.locked) < lockedFor
}

// anySlow reports whether reads of any single partition seem to be blocked.
func (l *readLimits) anySlow() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for partition, one := range l.byPartition {
		if partition != manyPartitions && one.isSlow() {
			return true
		}
	}
	return false
}
