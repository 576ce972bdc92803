package outbound

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/badged/badged/internal/base/wait"
)

// lane identifies a queue from which senders read: the devices of one app and platform, or the
// subjects of one webhook. Each app and webhook has its own queue, so that a slow one does not
// delay the rest.
type lane struct {
	// name is the name of an app, or if platform is empty, the name of a webhook.
	name, platform string
}

// row identifies an entry of a lane. For a device, first is the user and last the id of the
// device. For a webhook, first is the type and last the name of a subject.
type row struct {
	partition   int
	first, last string
}

// lanes records for each lane which partitions may have due rows, and which rows senders are
// processing.
type lanes struct {
	mu    sync.Mutex
	owned []int
	// since has, for each owned partition, the time on the clock of Postgres when this process
	// first read due devices of the partition. If a device became due before this time, another
	// process may already have sent its push.
	since map[int]time.Time
	all   map[lane]*laneState
}

type laneState struct {
	// look has the partitions that may have due rows: senders must read the rows of these
	// partitions.
	look map[int]struct{}
	wake chan struct{}
	// taken has the rows that senders have got and not reported yet.
	taken map[row]struct{}
}

func newLanes() lanes { return lanes{since: map[int]time.Time{}, all: map[lane]*laneState{}} }

// ownedSince returns the value of since for a partition, or the zero time if there is no value.
func (ls *lanes) ownedSince(partition int) time.Time {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.since[partition]
}

// setOwnedSince sets the value of since for a partition. It does nothing if since already has a
// value, or if this process does not own the partition any more.
func (ls *lanes) setOwnedSince(partition int, at time.Time) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if _, known := ls.since[partition]; !known && slices.Contains(ls.owned, partition) {
		ls.since[partition] = at
	}
}

// of returns the state of a lane. For a new lane it creates a state, with which the senders read
// all owned partitions.
func (ls *lanes) of(l lane) *laneState {
	s, ok := ls.all[l]
	if !ok {
		s = &laneState{look: map[int]struct{}{}, wake: make(chan struct{}, 1), taken: map[row]struct{}{}}
		s.lookAt(ls.owned)
		ls.all[l] = s
	}
	return s
}

func (s *laneState) lookAt(partitions []int) {
	for _, p := range partitions {
		s.look[p] = struct{}{}
	}
	wait.Wake(s.wake)
}

// own sets the partitions that this process owns.
func (ls *lanes) own(owned []int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.owned = slices.Clone(owned)
	maps.DeleteFunc(ls.since, func(p int, _ time.Time) bool { return !slices.Contains(owned, p) })
	for _, s := range ls.all {
		maps.DeleteFunc(s.look, func(p int, _ struct{}) bool { return !slices.Contains(owned, p) })
		s.lookAt(owned)
	}
}

// partitions returns the partitions that this process owns.
func (ls *lanes) partitions() []int {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.owned
}

// lookEverywhere makes the senders of all lanes read the due rows of all owned partitions.
func (ls *lanes) lookEverywhere() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, s := range ls.all {
		s.lookAt(ls.owned)
	}
}

// lookForCalls makes the senders of all webhooks read the due rows of a partition.
func (ls *lanes) lookForCalls(partition int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for l, s := range ls.all {
		if l.platform == "" && slices.Contains(ls.owned, partition) {
			s.lookAt([]int{partition})
		}
	}
}

// look makes the senders of the given lanes read the due rows of a partition.
func (ls *lanes) look(partition int, touched map[lane]struct{}) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for l := range touched {
		// Skip a lane that has no state: it has no sender.
		if s, ok := ls.all[l]; ok && slices.Contains(ls.owned, partition) {
			s.lookAt([]int{partition})
		}
	}
}

// next removes a partition from the look set of a lane and returns it. taken has the rows of this
// partition that senders are already processing. If the set is empty, ok is false: wait for a
// value from wake and call next again.
func (ls *lanes) next(l lane) (partition int, taken []row, wake <-chan struct{}, ok bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	s := ls.of(l)
	for partition = range s.look { // maps iterate in random order, so no partition starves
		ok = true
		delete(s.look, partition)
		break
	}
	for r := range s.taken {
		if r.partition == partition {
			taken = append(taken, r)
		}
	}
	return partition, taken, s.wake, ok
}

// take records that senders have got rows. more is set if the partition may have further due
// rows.
func (ls *lanes) take(l lane, partition int, rows []row, more bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	s := ls.of(l)
	for _, r := range rows {
		s.taken[r] = struct{}{}
	}
	if more && slices.Contains(ls.owned, partition) {
		s.lookAt([]int{partition})
	}
}

// give records that senders have finished with rows and that their reports are stored. The rows
// may be due again, so give makes senders read the partitions.
func (ls *lanes) give(l lane, rows ...row) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	s := ls.of(l)
	for _, r := range rows {
		delete(s.taken, r)
		if slices.Contains(ls.owned, r.partition) {
			s.lookAt([]int{r.partition})
		}
	}
}

// claim returns due rows of a lane. It calls take for one partition after the other until a call
// returns rows; take reads the due rows of a partition, except the rows in taken. While no
// partition may have due rows, claim waits. Its only error is the error of ctx.
func claim[T any](ctx context.Context, n *Notifier, l lane, take func(partition int, taken []row) ([]T, error)) ([]T, error) {
	backoff := wait.Backoff{First: firstBackoff, Last: lastBackoff}
	for {
		partition, taken, wake, ok := n.lanes.next(l)
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
		case len(rows) > 0: // also if ctx is done: lanes.take has already recorded that the caller gets them
			return rows, nil
		case err != nil:
			n.lanes.look(partition, map[lane]struct{}{l: {}})
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
