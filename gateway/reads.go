package gateway

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/badged/badged/pubsub"
)

const (
	// readsAtOnce is the maximum number of concurrent queries for states of clients that see all
	// categories. lookupsAtOnce is the maximum number of concurrent queries for commands, and for
	// states of clients that are limited to categories. The sum of the two is less than the number
	// of database connections of a process, so that HTTP requests find a free connection.
	readsAtOnce   = 4
	lookupsAtOnce = 3
	// readsOfPartition is the maximum number of concurrent queries for states of one partition. If
	// locked tables block all queries of one partition, the queries of other partitions still run.
	readsOfPartition = readsAtOnce / 2
	// readBatch is the maximum number of states that one query reads. It limits the memory for
	// large snapshots.
	readBatch = 100
	// readSplit is used after a query has failed or timed out: the states are read again in
	// batches that are smaller by this factor. So if one user has caused the failure, the other
	// users of the batch still get their states.
	readSplit = 10
	// If readFailures queries in a row have failed, a single user is not the cause. Batches then
	// have the full size again, since smaller batches would only mean more queries.
	readFailures = 2 * readSplit
)

// reads reads the states of users. Calls are queued while readsAtOnce queries run. One query
// answers many queued calls of one partition, so few queries run when many clients connect at
// once. Calls for the same user and the same state of the client get the answer of the same
// query. The queues of the partitions are served in turn. reads is safe for concurrent use.
type reads struct {
	badges  Badges
	timeout time.Duration

	// cancel ends ctx, and with it the running queries.
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu sync.Mutex
	// waiting has the queued calls by partition. turns lists each partition with queued calls
	// once, in the order in which their queries start.
	waiting map[int][]*stateRead
	turns   []int
	queries int // running queries
	// busy counts the running queries by partition.
	busy map[int]int
	// reading maps each user whose state is being read to the later calls for the same user.
	// These calls are queued again when the read ends. So only one query at a time reads a
	// user, even if the query is slow.
	reading map[string][]*stateRead
	// failures counts the failed queries since the last query that succeeded.
	failures int
}

// stateRead is a call that waits for a state.
type stateRead struct {
	ctx  context.Context // of the caller
	held pubsub.Held
	// limit is the maximum size of a batch that includes this call.
	limit int

	done  chan struct{} // closed when the answer is set
	state pubsub.Snapshot
	err   error
}

func newReads(badges Badges, timeout time.Duration) *reads {
	ctx, cancel := context.WithCancel(context.Background())
	return &reads{badges: badges, timeout: timeout, ctx: ctx, cancel: cancel, waiting: map[int][]*stateRead{}, busy: map[int]int{}, reading: map[string][]*stateRead{}}
}

// read returns the changes since the client's state `held`, or the whole state: see
// Badges.States.
func (r *reads) read(ctx context.Context, partition int, held pubsub.Held) (pubsub.Snapshot, error) {
	q := &stateRead{ctx: ctx, held: held, limit: readBatch, done: make(chan struct{})}
	r.mu.Lock()
	r.enqueue(partition, q)
	r.mu.Unlock()
	select {
	case <-q.done:
		return q.state, q.err
	case <-ctx.Done():
		return pubsub.Snapshot{}, ctx.Err()
	}
}

// enqueue queues calls of a partition. If fewer than readsAtOnce goroutines execute the method
// run, enqueue starts one more. The caller holds mu.
func (r *reads) enqueue(partition int, calls ...*stateRead) {
	if len(calls) == 0 {
		return
	}
	if len(r.waiting[partition]) == 0 {
		r.turns = append(r.turns, partition)
	}
	r.waiting[partition] = append(r.waiting[partition], calls...)
	if r.queries < readsAtOnce {
		r.queries++
		r.running.Go(r.run)
	}
}

// stop cancels the running queries and returns when they have ended. Do not call read
// afterwards.
func (r *reads) stop() {
	r.cancel()
	r.running.Wait()
}

// run answers batches of queued calls until next returns no batch.
func (r *reads) run() {
	for {
		partition, b, ok := r.next()
		if !ok {
			return
		}
		failed := r.answer(partition, &b)
		r.mu.Lock()
		if r.busy[partition]--; r.busy[partition] == 0 {
			delete(r.busy, partition)
		}
		for _, h := range b.held {
			behind := r.reading[h.UserID]
			delete(r.reading, h.UserID)
			if failed != nil {
				failed = append(failed, behind...)
			} else {
				r.enqueue(partition, behind...)
			}
		}
		for _, q := range failed {
			q.limit = max(1, len(b.held)/readSplit)
		}
		r.enqueue(partition, failed...)
		r.mu.Unlock()
	}
}

// batch has the calls that one query answers. held[i] is a user and the state that the user's
// client has, and calls[i] are the calls that wait for the changes since this state.
type batch struct {
	held  []pubsub.Held
	calls [][]*stateRead
}

// next removes a batch of calls from the queues. It skips partitions with readsOfPartition
// running queries. If ok is false, only skipped partitions have queued calls, or none has, and
// the goroutine that called next must end.
func (r *reads) next() (partition int, b batch, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	turn := slices.IndexFunc(r.turns, func(p int) bool { return r.busy[p] < readsOfPartition })
	if turn < 0 { // the goroutines of running queries will answer the queued calls
		r.queries--
		return 0, batch{}, false
	}
	partition = r.turns[turn]
	r.turns = slices.Delete(r.turns, turn, turn+1)
	r.busy[partition]++
	waiting := r.waiting[partition]
	delete(r.waiting, partition)
	places := map[pubsub.Held]int{}
	limit := readBatch
	for i, q := range waiting {
		if q.ctx.Err() != nil {
			continue // the caller has given up
		}
		if place, ok := places[q.held]; ok {
			b.calls[place] = append(b.calls[place], q)
			continue
		}
		if behind, ok := r.reading[q.held.UserID]; ok {
			r.reading[q.held.UserID] = append(behind, q)
			continue
		}
		if r.failures < readFailures {
			limit = min(limit, q.limit)
		}
		if len(b.held) >= limit {
			r.enqueue(partition, waiting[i:]...)
			break
		}
		places[q.held] = len(b.held)
		r.reading[q.held.UserID] = nil
		b.held, b.calls = append(b.held, q.held), append(b.calls, []*stateRead{q})
	}
	return partition, b, true
}

// answer reads the states of a batch. If the query fails or times out, and a single user of the
// batch may be the cause, answer does not answer the calls but returns them. The caller then
// queues them again for smaller batches.
func (r *reads) answer(partition int, b *batch) (failed []*stateRead) {
	if len(b.held) == 0 {
		return nil
	}
	timeout := r.timeout
	if len(b.held) > 1 {
		timeout /= readSplit // the callers must get an answer within timeout, even after smaller batches
	}
	ctx, cancel := context.WithTimeout(r.ctx, timeout)
	defer cancel()
	states, err := r.badges.States(ctx, partition, b.held)
	if r.failed(err) && len(b.held) > 1 && r.ctx.Err() == nil {
		return slices.Concat(b.calls...)
	}
	for i, calls := range b.calls {
		for n, q := range calls {
			switch q.err = err; {
			case err != nil:
			case n == 0:
				q.state = states[i]
			default:
				q.state = clone(states[i]) // each session modifies its own copy
			}
		}
		for _, q := range calls {
			close(q.done)
		}
	}
	return nil
}

// failed counts consecutive failed queries. It reports whether a single user of the batch may
// have caused err.
func (r *reads) failed(err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.failures = 0
		return false
	}
	r.failures++
	return r.failures < readFailures
}

// clone returns a copy of s that the caller may modify. The copy shares only the rooms with s,
// which are never modified.
func clone(s pubsub.Snapshot) pubsub.Snapshot {
	for _, b := range []*pubsub.Badge{&s.Badge, &s.Rest} {
		b.Categories = maps.Clone(b.Categories)
	}
	s.Conversations, s.Memberships = slices.Clone(s.Conversations), slices.Clone(s.Memberships)
	return s
}
