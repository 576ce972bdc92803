package outbound

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/badged/badged/internal/base/wait"
)

// queueKey identifies a queue from which senders read: the devices of one app and platform, or the
// users, rooms and other subjects about which one webhook must be called. Each app and webhook has
// its own queue, so that a slow app or webhook does not delay other apps and webhooks.
type queueKey struct {
	// name is the name of an app, or if platform is empty, the name of a webhook.
	name, platform string
}

// row identifies an entry of a queue. For a device, first is the user and last the id of the
// device. For a webhook, first is the type and last the name of a subject.
type row struct {
	partition   int
	first, last string
}

// queues records for each queue which partitions may have due rows, and which rows senders are
// processing.
type queues struct {
	mu    sync.Mutex
	owned []int
	// firstRead has, for each owned partition, the time on the clock of Postgres when this process
	// first read due devices of the partition. If a device became due before this time, another
	// process may already have sent a push to the device.
	firstRead map[int]time.Time
	byKey     map[queueKey]*queueState
}

type queueState struct {
	// due has the partitions that may have due rows: senders must read the rows of these
	// partitions.
	due  map[int]struct{}
	wake chan struct{}
	// inProgress has the rows that senders have got and not reported yet.
	inProgress map[row]struct{}
}

func newQueues() queues {
	return queues{firstRead: map[int]time.Time{}, byKey: map[queueKey]*queueState{}}
}

// ownedSince returns the value of firstRead for a partition, or the zero time if there is no value.
func (ls *queues) ownedSince(partition int) time.Time {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.firstRead[partition]
}

// setOwnedSince sets the value of firstRead for a partition. It does nothing if firstRead already
// has a value, or if this process does not own the partition any more.
func (ls *queues) setOwnedSince(partition int, at time.Time) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if _, known := ls.firstRead[partition]; !known && slices.Contains(ls.owned, partition) {
		ls.firstRead[partition] = at
	}
}

// state returns the state of a queue. It creates the state of a new queue in such a way that
// senders first read all owned partitions.
func (ls *queues) state(l queueKey) *queueState {
	s, ok := ls.byKey[l]
	if !ok {
		s = &queueState{due: map[int]struct{}{}, wake: make(chan struct{}, 1), inProgress: map[row]struct{}{}}
		s.markDue(ls.owned)
		ls.byKey[l] = s
	}
	return s
}

func (s *queueState) markDue(partitions []int) {
	for _, p := range partitions {
		s.due[p] = struct{}{}
	}
	wait.Wake(s.wake)
}

// setOwned sets the partitions that this process owns.
func (ls *queues) setOwned(owned []int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.owned = slices.Clone(owned)
	maps.DeleteFunc(ls.firstRead, func(p int, _ time.Time) bool { return !slices.Contains(owned, p) })
	for _, s := range ls.byKey {
		maps.DeleteFunc(s.due, func(p int, _ struct{}) bool { return !slices.Contains(owned, p) })
		s.markDue(owned)
	}
}

// partitions returns the partitions that this process owns.
func (ls *queues) partitions() []int {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.owned
}

// markAllDue makes the senders of all queues read the due rows of all owned partitions.
func (ls *queues) markAllDue() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, s := range ls.byKey {
		s.markDue(ls.owned)
	}
}

// markCallsDue makes the senders of all webhooks read the due rows of a partition.
func (ls *queues) markCallsDue(partition int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for l, s := range ls.byKey {
		if l.platform == "" && slices.Contains(ls.owned, partition) {
			s.markDue([]int{partition})
		}
	}
}

// markDue makes the senders of the given queues read the due rows of a partition.
func (ls *queues) markDue(partition int, touched map[queueKey]struct{}) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for l := range touched {
		// Skip a queue that has no state: it has no sender.
		if s, ok := ls.byKey[l]; ok && slices.Contains(ls.owned, partition) {
			s.markDue([]int{partition})
		}
	}
}

// next removes a partition from the due set of a queue and returns it. taken has the rows of this
// partition that senders are already processing. If the set is empty, ok is false: wait for a
// value from wake and call next again.
func (ls *queues) next(l queueKey) (partition int, taken []row, wake <-chan struct{}, ok bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	s := ls.state(l)
	for partition = range s.due { // maps iterate in random order, so no partition starves
		ok = true
		delete(s.due, partition)
		break
	}
	for r := range s.inProgress {
		if r.partition == partition {
			taken = append(taken, r)
		}
	}
	return partition, taken, s.wake, ok
}

// start records that senders have got rows. more is true if the partition may have further due
// rows.
func (ls *queues) start(l queueKey, partition int, rows []row, more bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	s := ls.state(l)
	for _, r := range rows {
		s.inProgress[r] = struct{}{}
	}
	if more && slices.Contains(ls.owned, partition) {
		s.markDue([]int{partition})
	}
}

// finish records that senders have finished with rows and that their reports are stored. The rows
// may be due again, so finish makes senders read the partitions.
func (ls *queues) finish(l queueKey, rows ...row) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	s := ls.state(l)
	for _, r := range rows {
		delete(s.inProgress, r)
		if slices.Contains(ls.owned, r.partition) {
			s.markDue([]int{r.partition})
		}
	}
}

// claim returns due rows of a queue. It calls the function `take` for one partition after the other
// until a call returns rows; `take` reads the due rows of a partition, except the rows in taken.
// As long as no partition can have due rows, claim waits. Its only error is the error of ctx.
func claim[T any](ctx context.Context, n *Notifier, l queueKey, take func(partition int, taken []row) ([]T, error)) ([]T, error) {
	backoff := wait.Backoff{First: firstBackoff, Last: lastBackoff}
	for {
		partition, taken, wake, ok := n.queues.next(l)
		if !ok {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-wake:
			}
			continue
		}
		rows, err := take(partition, taken)
		switch {
		case len(rows) > 0: // also if ctx is done: queues.start has already recorded that the caller gets the rows
			return rows, nil
		case err != nil:
			n.queues.markDue(partition, map[queueKey]struct{}{l: {}})
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			n.metrics.failed.Inc()
			pause := backoff.Next()
			n.log.WarnContext(ctx, "cannot read which pushes or webhook calls are due, will try again", "partition", partition, "error", err, "in", pause)
			if err := wait.For(ctx, pause); err != nil {
				return nil, err
			}
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}
	}
}
