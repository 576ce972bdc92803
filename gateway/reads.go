package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/badged/badged/pubsub"
)

const (
	// readsAtOnce is the most concurrent queries for states, and for commands. It
	// is less than the connections of a process, so that HTTP requests find some.
	readsAtOnce = 4
	// readBatch is the most users of one query. It bounds the memory of large
	// snapshots.
	readBatch = 100
)

// reads reads the states of users. Calls that come while queries run wait, and one
// query answers all of a partition: when many clients come at once, queries are
// few. Partitions take turns. It is safe for concurrent use.
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
}

// stateRead is a call that waits for a state.
type stateRead struct {
	ctx  context.Context // of the caller
	held pubsub.Held

	done  chan struct{} // closed once there is an answer
	state pubsub.Snapshot
	err   error
}

func newReads(badges Badges, timeout time.Duration) *reads {
	ctx, cancel := context.WithCancel(context.Background())
	return &reads{badges: badges, timeout: timeout, ctx: ctx, cancel: cancel, waiting: map[int][]*stateRead{}}
}

// read returns the changes since a held state, or the whole; see Badges.States.
func (r *reads) read(ctx context.Context, partition int, held pubsub.Held) (pubsub.Snapshot, error) {
	q := &stateRead{ctx: ctx, held: held, done: make(chan struct{})}
	r.mu.Lock()
	if len(r.waiting[partition]) == 0 {
		r.turns = append(r.turns, partition)
	}
	r.waiting[partition] = append(r.waiting[partition], q)
	if r.queries < readsAtOnce {
		r.queries++
		r.running.Go(r.run)
	}
	r.mu.Unlock()
	select {
	case <-q.done:
		return q.state, q.err
	case <-ctx.Done():
		return pubsub.Snapshot{}, ctx.Err()
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
		partition, batch := r.next()
		if batch == nil {
			return
		}
		r.answer(partition, batch)
	}
}

// next takes a batch. It returns nil if no call waits: then the caller must end.
func (r *reads) next() (partition int, batch []*stateRead) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.turns) == 0 {
		r.queries--
		return 0, nil
	}
	partition, r.turns = r.turns[0], r.turns[1:]
	waiting := r.waiting[partition]
	n := min(len(waiting), readBatch)
	if n < len(waiting) {
		r.waiting[partition] = waiting[n:]
		r.turns = append(r.turns, partition)
	} else {
		delete(r.waiting, partition)
	}
	return partition, waiting[:n]
}

// answer reads the states of a batch, except for calls that were cancelled.
func (r *reads) answer(partition int, batch []*stateRead) {
	var live []*stateRead
	var held []pubsub.Held
	for _, q := range batch {
		if q.ctx.Err() == nil {
			live, held = append(live, q), append(held, q.held)
		}
	}
	if len(live) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(r.ctx, r.timeout)
	defer cancel()
	states, err := r.badges.States(ctx, partition, held)
	for i, q := range live {
		if q.err = err; err == nil {
			q.state = states[i]
		}
		close(q.done)
	}
}
