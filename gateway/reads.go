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
	// readsAtOnce is the most concurrent queries for states, and lookupsAtOnce for
	// commands and for states of some categories. They are less than the connections of a
	// process, so that HTTP requests find some.
	readsAtOnce   = 4
	lookupsAtOnce = 3
	// readsOfPartition is the most of one partition: its tables may be locked.
	readsOfPartition = readsAtOnce / 2
	// readBatch is the most states of one query. It bounds the memory of large
	// snapshots.
	readBatch = 100
	// readSplit is how much smaller the next queries are for the states of one that
	// failed or was slow: one user must not fail or delay the others of a batch.
	readSplit = 10
	// readFailures is after how many failed queries in succession it is not a user that
	// makes them fail, and smaller ones would only be more.
	readFailures = 2 * readSplit
)

// reads reads the states of users. Calls that come while queries run wait, and one
// query answers all of a partition: when many clients come at once, queries are
// few. Equal calls share an answer, and partitions take turns. It is safe for concurrent
// use.
type reads struct {
	badges  Badges
	timeout time.Duration

	// ctx ends with stop, and the queries under way with it.
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu sync.Mutex
	// waiting has the calls by partition, turns the partitions with any, each
	// once.
	waiting map[int][]*stateRead
	turns   []int
	queries int // under way
	// busy counts them by partition.
	busy map[int]int
	// reading are the users whose states are being read, each with the calls that wait
	// for the end of that: one user has one query at a time, however slow.
	reading map[string][]*stateRead
	// failures counts the queries that failed since one did not.
	failures int
}

// stateRead is a call that waits for a state.
type stateRead struct {
	ctx  context.Context // of the caller
	held pubsub.Held
	// most is the largest batch that the call may be in.
	most int

	done  chan struct{} // closed once there is an answer
	state pubsub.Snapshot
	err   error
}

func newReads(badges Badges, timeout time.Duration) *reads {
	ctx, cancel := context.WithCancel(context.Background())
	return &reads{badges: badges, timeout: timeout, ctx: ctx, cancel: cancel, waiting: map[int][]*stateRead{}, busy: map[int]int{}, reading: map[string][]*stateRead{}}
}

// read returns the changes since a held state, or the whole; see Badges.States.
func (r *reads) read(ctx context.Context, partition int, held pubsub.Held) (pubsub.Snapshot, error) {
	q := &stateRead{ctx: ctx, held: held, most: readBatch, done: make(chan struct{})}
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

// enqueue adds calls of a partition, and sees to it that they are answered. The caller
// holds mu.
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

// stop cancels running queries. Do not call read after it.
func (r *reads) stop() {
	r.cancel()
	r.running.Wait()
}

// run answers batches until no call waits.
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
			q.most = max(1, len(b.held)/readSplit)
		}
		r.enqueue(partition, failed...)
		r.mu.Unlock()
	}
}

// batch is what one query reads, and the calls that each state answers.
type batch struct {
	held  []pubsub.Held
	calls [][]*stateRead
}

// next takes a batch. It reports whether there is one: otherwise the caller must end.
func (r *reads) next() (partition int, b batch, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	turn := slices.IndexFunc(r.turns, func(p int) bool { return r.busy[p] < readsOfPartition })
	if turn < 0 { // the queries under way go on with what is left
		r.queries--
		return 0, batch{}, false
	}
	partition = r.turns[turn]
	r.turns = slices.Delete(r.turns, turn, turn+1)
	r.busy[partition]++
	waiting := r.waiting[partition]
	delete(r.waiting, partition)
	places := map[pubsub.Held]int{}
	most := readBatch
	for i, q := range waiting {
		if q.ctx.Err() != nil {
			continue // the caller has gone
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
			most = min(most, q.most)
		}
		if len(b.held) >= most {
			r.enqueue(partition, waiting[i:]...)
			break
		}
		places[q.held] = len(b.held)
		r.reading[q.held.UserID] = nil
		b.held, b.calls = append(b.held, q.held), append(b.calls, []*stateRead{q})
	}
	return partition, b, true
}

// answer reads the states of a batch. If that fails or takes long, it returns the calls,
// which are then to be in smaller batches.
func (r *reads) answer(partition int, b *batch) (failed []*stateRead) {
	if len(b.held) == 0 {
		return nil
	}
	timeout := r.timeout
	if len(b.held) > 1 {
		timeout /= readSplit // its callers wait no longer than timeout in all
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
				q.state = clone(states[i]) // each session changes its own
			}
		}
		for _, q := range calls {
			close(q.done)
		}
	}
	return nil
}

// failed notes how a query ended, and reports whether it failed because of its users.
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

// clone returns a state that shares nothing with s but rooms, which do not change.
func clone(s pubsub.Snapshot) pubsub.Snapshot {
	for _, b := range []*pubsub.Badge{&s.Badge, &s.Rest} {
		b.Categories = maps.Clone(b.Categories)
	}
	s.Conversations, s.Memberships = slices.Clone(s.Conversations), slices.Clone(s.Memberships)
	return s
}
