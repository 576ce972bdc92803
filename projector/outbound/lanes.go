package outbound

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// lane is what senders take from: an app and a platform, or a webhook. A lane that is
// slow delays no other.
type lane struct {
	// name is that of an app or, if platform is empty, of a webhook.
	name, platform string
}

// row identifies a row within a lane: a device, or a subject of a type.
type row struct {
	partition   int
	first, last string
}

// lanes know where there may be rows that are due, and which rows senders have.
type lanes struct {
	mu    sync.Mutex
	owned []int
	// since is when this process first took from a partition that it owns, by the
	// clock of Postgres: what was due before may have been sent by another.
	since map[int]time.Time
	all   map[lane]*laneState
}

type laneState struct {
	// look are the partitions that may have due rows.
	look map[int]struct{}
	wake chan struct{}
	// taken are the rows that senders have not reported on.
	taken map[row]struct{}
}

func newLanes() lanes { return lanes{since: map[int]time.Time{}, all: map[lane]*laneState{}} }

// ownedSince returns when this process first took from a partition, or zero.
func (ls *lanes) ownedSince(partition int) time.Time {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.since[partition]
}

// setOwnedSince sets what ownedSince returns, unless the partition was lost or is
// known meanwhile.
func (ls *lanes) setOwnedSince(partition int, at time.Time) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if _, known := ls.since[partition]; !known && slices.Contains(ls.owned, partition) {
		ls.since[partition] = at
	}
}

// of returns the state of a lane, which looks everywhere at first.
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
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// own sets the partitions from which senders take.
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

// partitions returns the partitions from which senders take.
func (ls *lanes) partitions() []int {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.owned
}

// lookEverywhere lets the senders of all lanes look at all partitions.
func (ls *lanes) lookEverywhere() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, s := range ls.all {
		s.lookAt(ls.owned)
	}
}

// lookForCalls lets the senders of all webhooks look at a partition.
func (ls *lanes) lookForCalls(partition int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for l, s := range ls.all {
		if l.platform == "" && slices.Contains(ls.owned, partition) {
			s.lookAt([]int{partition})
		}
	}
}

// look lets the senders of lanes look at a partition.
func (ls *lanes) look(partition int, touched map[lane]struct{}) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for l := range touched {
		// A lane from which nothing takes keeps nothing in memory.
		if s, ok := ls.all[l]; ok && slices.Contains(ls.owned, partition) {
			s.lookAt([]int{partition})
		}
	}
}

// next returns a partition that may have due rows of a lane and the rows there that
// senders have; wake tells when to ask again if there is none.
func (ls *lanes) next(l lane) (partition int, taken []row, wake <-chan struct{}, ok bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	s := ls.of(l)
	for partition = range s.look { // any: all get their turn
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

// take notes that senders have rows; more is whether there may be more in the
// partition.
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

// give notes that what became of rows is stored: they may be due again.
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

// claim calls take with one partition after the other that may have due rows of a
// lane, until one returns rows. The only error is that of ctx.
func claim[T any](ctx context.Context, n *Notifier, l lane, take func(partition int, taken []row) ([]T, error)) ([]T, error) {
	backoff := firstBackoff
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
		case len(rows) > 0: // also if ctx is done: they are the caller's now
			return rows, nil
		case err != nil:
			n.lanes.look(partition, map[lane]struct{}{l: {}})
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			n.metrics.failed.Inc()
			n.log.WarnContext(ctx, "cannot read what is due, will try again", "partition", partition, "error", err, "in", backoff)
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(backoff):
			}
			backoff = min(2*backoff, lastBackoff)
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}
	}
}
