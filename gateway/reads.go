package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/badged/badged/pubsub"
)

const (
	// readsAtOnce is how many queries for states, and how many for commands, are
	// under way at most: a part of the connections that a process has to the
	// database, so that those who ask over HTTP find one free.
	readsAtOnce = 4
	// readBatch is how many users one query reads at most. With it, what is held
	// in memory of those whose snapshots are large is bounded.
	readBatch = 100
)

// reads reads the states of users. Who asks while others do waits, and is
// answered together with all others of the partition by one query: when
// everybody comes at once, queries are few. Partitions take turns. It is safe
// for concurrent use.
type reads struct {
	badges  Badges
	timeout time.Duration

	// ctx ends with stop, and the queries under way with it.
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu sync.Mutex
	// waiting are by partition; turns are the partitions that have some, each
	// once.
	waiting map[int][]*stateRead
	turns   []int
	queries int // under way
}

// stateRead is one state that somebody waits for.
type stateRead struct {
	ctx  context.Context // of who waits
	held pubsub.Held

	done  chan struct{} // closed once there is an answer
	state pubsub.Snapshot
	err   error
}

func newReads(badges Badges, timeout time.Duration) *reads {
	ctx, cancel := context.WithCancel(context.Background())
	return &reads{badges: badges, timeout: timeout, ctx: ctx, cancel: cancel, waiting: map[int][]*stateRead{}}
}

// read returns what brings who holds a state up to date; see Badges.States.
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

// stop ends the queries under way. Nothing may be read from then on.
func (r *reads) stop() {
	r.cancel()
	r.running.Wait()
}

// run answers batch after batch until nobody waits.
func (r *reads) run() {
	for {
		partition, batch := r.next()
		if batch == nil {
			return
		}
		r.answer(partition, batch)
	}
}

// next takes a batch, or ends the caller's turn with nil where nobody waits.
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

// answer reads the states of a batch, but for whom nobody waits any more.
func (r *reads) answer(partition int, batch []*stateRead) {
	var asked []*stateRead
	var held []pubsub.Held
	for _, q := range batch {
		if q.ctx.Err() == nil {
			asked, held = append(asked, q), append(held, q.held)
		}
	}
	if len(asked) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(r.ctx, r.timeout)
	defer cancel()
	states, err := r.badges.States(ctx, partition, held)
	for i, q := range asked {
		if q.err = err; err == nil {
			q.state = states[i]
		}
		close(q.done)
	}
}
