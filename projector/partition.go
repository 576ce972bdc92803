package projector

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
)

// What a batch may take. A transaction in progress hides what was appended
// after it began, in every partition, so none should take long.
const (
	batchBytes   = 8 << 20 // of payload, read at once
	firstBatch   = 500     // events, until it is known how fast they go
	fastBatch    = 100 * time.Millisecond
	slowBatch    = 250 * time.Millisecond
	batchTimeout = 30 * time.Second // a database that answers takes far less
	smallestRun  = 50               // events; below, the fixed cost of a transaction rules
)

// Waiting for older transactions to settle, and for a database that is away.
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
	tables    *tables
	wakes     chan struct{}
	owned     atomic.Bool
	// hidden is set while the loop waits for older transactions to settle.
	hidden atomic.Bool
	// next is the generation of keys that the next batch is to begin, if it is
	// the one after the present one; 0 for none.
	next atomic.Int64

	// Of the loop only.
	position events.Position
	standing standing
	known    bool // whether position and standing are
	cache    *cache
	recent   *recentKeys
	caution  caution
	limit    int   // events of the next batch
	commits  int64 // of the projector, as of the last read; see settled
}

func newPartition(id int, p *Projector) *partition {
	memory := p.cfg.CacheBytes / p.cfg.Log.Partitions()
	return &partition{
		id:        id,
		projector: p,
		tables:    newTables(id),
		wakes:     make(chan struct{}, 1),
		cache:     newCache(memory - memory/recentShare),
		recent:    newRecentKeys(memory / recentShare),
		limit:     min(firstBatch, p.cfg.MaxBatch),
	}
}

// wake makes the loop look for events; wakes that come while one is waiting
// are one.
func (p *partition) wake() {
	select {
	case p.wakes <- struct{}{}:
	default:
	}
}

// run folds the partition until ctx is done; ctx lasts as long as the
// ownership does.
func (p *partition) run(ctx context.Context) {
	p.known = false
	defer p.cache.clear() // what another owner does it would not know
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
			p.projector.log.ErrorContext(ctx, "fold failed, will try again",
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

// awaitSettled asks for a wake by the next batch that commits in any partition
// here: a batch that is under way is mostly what hides events, and the fewer
// then look for them in vain. One that has committed since they were read for
// wakes at once.
func (p *partition) awaitSettled() {
	p.hidden.Store(true)
	if p.projector.commits.Load() != p.commits {
		p.hidden.Store(false)
		p.wake()
	}
}

// drain folds batch after batch until nothing more can be read. It reports
// whether there is something that will become readable by itself.
func (p *partition) drain(ctx context.Context) (hidden bool, err error) {
	for {
		// A slot is taken for each batch, so that partitions with much to do take
		// turns with the others.
		select {
		case p.projector.slots <- struct{}{}:
		case <-ctx.Done():
			return false, nil
		}
		more, hidden, err := p.step(ctx)
		<-p.projector.slots
		switch {
		case errors.Is(err, errFenced):
			p.projector.metrics.fenced.Inc()
			p.projector.log.WarnContext(ctx, "another projector folds this partition too; taking up its position",
				"partition", p.id)
		case errors.Is(err, errRevised), errors.Is(err, errRepeated): // and is read again
		case err != nil || !more:
			return hidden, err
		}
	}
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
	read, err := events.Read(ctx, conn, p.id, p.position, p.limit, batchBytes)
	if err != nil || len(read.Records) == 0 {
		return false, read.Hidden, err
	}

	start := time.Now()
	b := newBatch(p.position, read.Records, p.id, len(p.projector.partitions))
	b.generation = p.standing.generation
	if next := int(p.next.Load()); next == b.generation+1 {
		b.generation, b.begins = next, true
	}
	b.doubt(p.recent, p.caution.advised())
	// A batch that has begun is finished: what is committed must be told.
	batchCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), batchTimeout)
	defer cancel()
	r, err := b.commit(batchCtx, conn.Conn(), p.tables, p.cache, p.standing, p.projector.cfg.Bus.Heard)
	if errors.Is(err, errRepeated) {
		p.caution.failed()
	}
	if err != nil {
		p.known = false // the commit may have succeeded all the same
		p.next.Store(0) // if its table is what is wrong, the present one will do
		return false, false, fmt.Errorf("fold %d events after %s: %w", len(read.Records), p.position, err)
	}
	p.position, p.standing.generation = b.to, b.generation
	p.account(b, r, time.Since(start)) // before anybody is told, who might look
	p.trace(b, r, start)
	p.projector.enqueue(r.updates)
	p.projector.settled()
	p.commits++ // its own hid nothing from it
	return read.More, read.Hidden, nil
}

// learn finds out how the partition stands, and forgets what was known.
func (p *partition) learn(ctx context.Context, conn *pgxpool.Conn) (err error) {
	p.cache.clear()
	if p.position, err = events.PositionOf(ctx, conn, p.id, ConsumerGroup); err != nil {
		return err
	}
	s := &p.standing
	if err := conn.QueryRow(ctx, p.tables.standingSQL).Scan(&s.epoch, &s.revision, &s.generation); err != nil {
		return fmt.Errorf("read how partition %d stands: %w", p.id, err)
	}
	p.known = true
	return nil
}

// account adds a batch to the metrics and adapts the size of the next one.
func (p *partition) account(b *batch, r result, took time.Duration) {
	m := p.projector.metrics
	n := len(b.items) + len(b.dead)
	m.folded.Add(float64(r.folded))
	m.duplicates.Add(float64(r.duplicates))
	m.deadLetters.Add(float64(len(b.dead)))
	m.batchEvents.Observe(float64(n))
	m.batchSeconds.Observe(took.Seconds())
	m.delaySeconds.Observe(time.Since(b.oldest).Seconds())

	switch {
	case took > slowBatch:
		p.limit = max(p.limit/2, min(smallestRun, p.projector.cfg.MaxBatch))
	case took < fastBatch && n == p.limit:
		p.limit = min(p.limit*2, p.projector.cfg.MaxBatch)
	}
}
