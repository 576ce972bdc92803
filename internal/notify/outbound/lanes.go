package outbound

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/badged/badged/internal/base/wait"
)

// lane is one of the queues from which senders read: the devices of one app and platform, or
// one webhook. A slow lane does not delay the others.
type lane struct {
	// name is the name of an app or, if platform is empty, of a webhook.
	name, platform string
}

// row identifies a row of a lane: a device (user and id), or a subject (type and name).
type row struct {
	partition   int
	first, last string
}

// lanes record which partitions may have due rows, and which rows senders have.
type lanes struct {
	mu    sync.Mutex
	owned []int
	// since is when this process first read from a partition that it owns, by the clock of
	// Postgres. Another process may have sent what was due before.
	since map[int]time.Time
	all   map[lane]*laneState
}

type laneState struct {
	// look has the partitions that may have due rows.
	look map[int]struct{}
	wake chan struct{}
	// taken has the rows that senders have and did not report yet.
	taken map[row]struct{}
}

func newLanes() lanes { return lanes{since: map[int]time.Time{}, all: map[lane]*laneState{}} }

// ownedSince returns when this process first read from a partition, or the zero time.
func (ls *lanes) ownedSince(partition int) time.Time {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.since[partition]
}

// setOwnedSince sets the result of ownedSince, unless it is set already or the partition is
// not owned any more.
func (ls *lanes) setOwnedSince(partition int, at time.Time) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if _, known := ls.since[partition]; !known && slices.Contains(ls.owned, partition) {
		ls.since[partition] = at
	}
}

// of returns the state of a lane. A new lane starts with all owned partitions in look.
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

// lookEverywhere makes the senders of all lanes look at all owned partitions.
func (ls *lanes) lookEverywhere() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, s := range ls.all {
		s.lookAt(ls.owned)
	}
}

// lookForCalls makes the senders of all webhooks look at a partition.
func (ls *lanes) lookForCalls(partition int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for l, s := range ls.all {
		if l.platform == "" && slices.Contains(ls.owned, partition) {
			s.lookAt([]int{partition})
		}
	}
}

// look makes the senders of the given lanes look at a partition.
func (ls *lanes) look(partition int, touched map[lane]struct{}) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for l := range touched {
		// A lane without a sender needs no state.
		if s, ok := ls.all[l]; ok && slices.Contains(ls.owned, partition) {
			s.lookAt([]int{partition})
		}
	}
}

// next returns a partition that may have due rows of a lane, and the rows of the partition
// that senders have. ok is false if there is no such partition; call next again after a token
// from wake.
func (ls *lanes) next(l lane) (partition int, taken []row, wake <-chan struct{}, ok bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	s := ls.of(l)
	for partition = range s.look { // in random order, so that no partition starves
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

// take records that senders have rows. more says whether the partition may have further due
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

// give records that reports about rows are stored. The rows may be due again.
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

// claim finds due rows of a lane. It calls take for each partition that may have due rows, one
// after the other, until a call returns rows. Its only error is the error of ctx.
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
		case len(rows) > 0: // also if ctx is done: they are the caller's now
			return rows, nil
		case err != nil:
			n.lanes.look(partition, map[lane]struct{}{l: {}})
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			n.metrics.failed.Inc()
			pause := backoff.Next()
			n.log.WarnContext(ctx, "cannot read what is due, will try again", "partition", partition, "error", err, "in", pause)
			if err := wait.For(ctx, pause); err != nil {
				return nil, err
			}
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}
	}
}
