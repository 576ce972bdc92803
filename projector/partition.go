package projector

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/internal/store"
)

// The duration of a batch. An open transaction hides what was appended after it
// began, in every partition, so batches should be short.
const (
	fastBatch    = 100 * time.Millisecond
	slowBatch    = 250 * time.Millisecond
	batchTimeout = 30 * time.Second // far more than a healthy database takes
	smallestRun  = 50               // events; in smaller batches the fixed cost dominates
)

// Pauses while older transactions settle, and while the database does not
// answer.
const (
	firstSettle  = 2 * time.Millisecond
	lastSettle   = 20 * time.Millisecond
	firstBackoff = 50 * time.Millisecond
	lastBackoff  = 2 * time.Second
)

// partition is one partition of the log and the loop that folds it.
type partition struct {
	id        int
	projector *Projector
	tables    *store.Tables
	wakes     chan struct{}
	owned     atomic.Bool
	// hidden is set while the loop waits for older transactions to settle.
	hidden atomic.Bool
	// next is the generation of keys that the next batch begins, if it is the
	// one after the present; 0 for none.
	next atomic.Int64

	// Only the loop uses the fields below.
	position events.Position
	state    store.PartitionState
	known    bool // whether position and state are current
	// reached is the furthest position seen committed in this epoch.
	reached events.Position
	cache   *store.Cache
	keys    *store.KeyCache
	backoff store.Backoff
	limit   int   // events of the next batch
	commits int64 // Projector.commits at the last read; see settled
}

func newPartition(id int, p *Projector) *partition {
	memory := p.cfg.CacheBytes / p.cfg.Log.Partitions()
	return &partition{
		id:        id,
		projector: p,
		tables:    store.NewTables(id),
		wakes:     make(chan struct{}, 1),
		cache:     store.NewCache(memory - memory/store.KeyCacheShare),
		keys:      store.NewKeyCache(memory / store.KeyCacheShare),
		limit:     min(store.FirstBatch, p.cfg.MaxBatch),
	}
}

// wake makes the loop look for events. Wakes that arrive while one is pending
// are merged.
func (p *partition) wake() {
	select {
	case p.wakes <- struct{}{}:
	default:
	}
}

// run folds the partition until ctx, which lasts as long as the ownership, is
// done.
func (p *partition) run(ctx context.Context) {
	p.known = false
	defer p.cache.Clear() // another owner may change the rows
	p.owned.Store(true)
	defer p.owned.Store(false)
	p.wake() // there may be a backlog

	settle, backoff := firstSettle, firstBackoff
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wakes:
		case <-retry.C:
		}
		hidden, err := p.drain(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			p.projector.metrics.failed.Inc()
			p.projector.log.ErrorContext(ctx, "cannot fold, will try again",
				"partition", p.id, "error", err, "in", backoff)
			retry.Reset(backoff)
			backoff = min(2*backoff, lastBackoff)
		case hidden:
			p.awaitSettled()
			retry.Reset(settle)
			settle, backoff = min(2*settle, lastSettle), firstBackoff
		default:
			settle, backoff = firstSettle, firstBackoff
		}
	}
}

// awaitSettled asks for a wake when the next batch of this process commits in
// any partition. Hidden events mostly wait for such a batch, so this saves
// polling. If one has committed since the read, it wakes at once.
func (p *partition) awaitSettled() {
	p.hidden.Store(true)
	if p.projector.commits.Load() != p.commits {
		p.hidden.Store(false)
		p.wake()
	}
}

// drain folds batches until there is nothing more to read. It reports whether
// events are hidden that will become readable by themselves.
func (p *partition) drain(ctx context.Context) (hidden bool, err error) {
	for {
		// Take a slot per batch, so that busy partitions take turns with others.
		select {
		case p.projector.slots <- struct{}{}:
		case <-ctx.Done():
			return false, nil
		}
		more, hidden, err := p.step(ctx)
		<-p.projector.slots
		if errors.Is(err, store.ErrFenced) {
			p.projector.metrics.fenced.Inc()
			p.projector.log.WarnContext(ctx, "another projector folds this partition too; continuing from its position",
				"partition", p.id)
		}
		if !readAgain(err) && (err != nil || !more) {
			return hidden, err
		}
	}
}

// readAgain reports whether a batch that failed with err is read and folded again
// at once.
func readAgain(err error) bool {
	return errors.Is(err, store.ErrFenced) || errors.Is(err, store.ErrRevised) || errors.Is(err, store.ErrRepeated)
}

// step folds one batch and reports whether there may be more to read now.
func (p *partition) step(ctx context.Context) (more, hidden bool, err error) {
	conn, err := p.projector.connections.take(ctx)
	if err != nil {
		return false, false, err
	}
	defer func() {
		if err != nil {
			conn.Release() // the pool closes it if it is inside a transaction
			return
		}
		p.projector.connections.keep(conn)
	}()

	if !p.known {
		if err := p.learn(ctx, conn); err != nil {
			return false, false, err
		}
	}
	p.commits = p.projector.commits.Load()
	read, err := events.Read(ctx, conn, p.id, p.position, p.limit, store.BatchBytes)
	if err != nil || len(read.Records) == 0 {
		return false, read.Hidden, err
	}

	start := time.Now()
	b := store.NewBatch(p.position, read.Records, p.id, len(p.projector.partitions))
	b.Generation = p.state.Generation
	if next := int(p.next.Load()); next == b.Generation+1 {
		b.Generation, b.Begins = next, true
	}
	b.MarkSuspects(p.keys, p.backoff.Next())
	// Finish a batch once it has begun: a committed batch must be published.
	batchCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), batchTimeout)
	defer cancel()
	r, err := b.Commit(batchCtx, conn.Conn(), p.tables, p.cache, p.state, p.projector.cfg.Bus.HasSubscribers)
	if errors.Is(err, store.ErrRepeated) {
		p.backoff.Failed()
	}
	if err != nil {
		p.known = false // the commit may have succeeded
		if !readAgain(err) {
			p.next.Store(0) // the table of the next generation may be the cause
		}
		return false, false, fmt.Errorf("fold %d events after %s: %w", len(read.Records), p.position, err)
	}
	p.position, p.state.Generation = b.To, b.Generation
	p.reached = b.To
	p.account(b, r, time.Since(start)) // before clients hear of it and look
	p.trace(b, r, start)
	p.projector.Tell(r.Updates)
	p.projector.settled()
	p.commits++ // its own commit hid nothing from it
	return read.More, read.Hidden, nil
}

// learn reads the state of the partition and clears the cache. It begins a new
// epoch if the tables may be older than the state of clients.
func (p *partition) learn(ctx context.Context, conn *pgxpool.Conn) error {
	p.cache.Clear()
	if err := p.look(ctx, conn); err != nil {
		return err
	}
	if _, is := p.rewound(); is {
		if err := p.beginEpoch(ctx, conn); err != nil {
			return err
		}
	}
	p.reached = p.position
	p.known = true
	return nil
}

// look reads the position and the state of the partition.
func (p *partition) look(ctx context.Context, q events.Querier) (err error) {
	if p.position, err = events.PositionOf(ctx, q, p.id, events.ProjectorGroup); err != nil {
		return err
	}
	if err := q.QueryRow(ctx, p.tables.StateSQL).Scan(p.state.Targets()...); err != nil {
		return fmt.Errorf("read the state of partition %d: %w", p.id, err)
	}
	return nil
}

// account adds a batch to the metrics and adapts the size of the next one.
func (p *partition) account(b *store.Batch, r store.Result, took time.Duration) {
	m := p.projector.metrics
	n := len(b.Items) + len(b.Dead)
	m.folded.Add(float64(r.Folded))
	m.duplicates.Add(float64(r.Duplicates))
	m.deadLetters.Add(float64(len(b.Dead)))
	m.batchEvents.Observe(float64(n))
	m.batchSeconds.Observe(took.Seconds())
	m.delaySeconds.Observe(time.Since(b.Oldest).Seconds())

	switch {
	case took > slowBatch:
		p.limit = max(p.limit/2, min(smallestRun, p.projector.cfg.MaxBatch))
	case took < fastBatch && n == p.limit:
		p.limit = min(p.limit*2, p.projector.cfg.MaxBatch)
	}
}
