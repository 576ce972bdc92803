package projector

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/fold/keys"
	"github.com/badged/badged/internal/fold/logread"
	"github.com/badged/badged/internal/fold/store"
	"github.com/badged/badged/internal/log/eventlog"
)

// Targets for the duration of a batch. A longer batch has more events that change the same
// row, and writes the row once for all of them, but it publishes the effect of its first
// events later.
const (
	fastBatch    = 200 * time.Millisecond
	slowBatch    = 500 * time.Millisecond
	batchTimeout = 30 * time.Second // a healthy database needs far less
	smallestRun  = 50               // in events; smaller batches cost nearly as much
)

// Pauses of the loop: firstWait to lastWait while it waits for a transaction that was just
// opened, firstBackoff to lastBackoff after an error of the database.
const (
	firstWait    = time.Millisecond
	lastWait     = 8 * time.Millisecond
	firstBackoff = 50 * time.Millisecond
	lastBackoff  = 2 * time.Second
)

// partition is one partition of the log. Its loop (run) folds the events in the log;
// Projector.Append folds the events that it appends.
type partition struct {
	id        int
	projector *Projector
	tables    *store.Tables
	wakes     chan struct{}
	owned     atomic.Bool
	// looked is true when the fence of an append has proved that no other event in the log is
	// unfolded. The next poll skips the partition and clears looked.
	looked atomic.Bool
	// next is the generation of event keys that the next batch must begin; 0 for none. It has
	// no effect unless it directly follows the present generation. Maintenance sets it.
	next atomic.Int64

	// foldLock is the fold lock. It has a token while a batch is folded, and guards the fields
	// from ready to size. It is a channel and not a mutex, because callers limit how long they
	// wait.
	foldLock chan struct{}
	// ready is true if the loop has found no unfolded event in the log when it last read the
	// log. Only then may an append fold its events.
	ready bool
	// caughtUp, if not nil, is closed when the loop sets ready.
	caughtUp chan struct{}
	cursor   logread.Cursor
	state    store.PartitionState
	letters  store.Letters // dead letters after the cursor; none unless the position was set back
	known    bool          // whether cursor, state and letters were read and may be current
	// fenced is true if the fence of the last batch failed.
	fenced bool
	// reached is the greatest position that this process has seen committed in this epoch.
	reached events.Position
	cache   *store.Cache
	keys    *keys.Window
	size    logread.Size // of the next page

	// memory limits the approximate size of cache and keys together, in bytes.
	memory int
	// merger merges the event keys. Only maintenance uses it.
	merger *keys.Merger
	// keyStats has the sizes of keys after their last change.
	keyStats atomic.Pointer[keys.Stats]
}

func newPartition(id int, p *Projector) *partition {
	memory := p.cfg.CacheBytes / max(p.cfg.Log.Layout().Len(), p.cfg.Log.Partitions())
	part := &partition{
		id:        id,
		projector: p,
		tables:    store.NewTables(id),
		wakes:     make(chan struct{}, 1),
		foldLock:  make(chan struct{}, 1),
		cache:     store.NewCache(memory),
		keys:      keys.NewWindow(id, memory/filterShare),
		size:      logread.Size{Events: min(store.FirstBatch, p.cfg.MaxBatch), Bytes: store.BatchBytes},
		memory:    memory,
	}
	part.merger = &keys.Merger{Pool: p.cfg.Pool, Window: part.keys, Locked: part.lockKeys, Sizes: keys.SizesFor(memory)}
	return part
}

// filterShare divides the memory of a partition: the filters of event keys use at most
// 1/filterShare. Recent event keys, and cached users and rooms, use the rest.
const filterShare = 2

// wake makes the loop look for events. It has no effect if a wake is already pending.
func (p *partition) wake() {
	select {
	case p.wakes <- struct{}{}:
	default:
	}
}

// run folds the partition until ctx is done. The caller cancels ctx when the process loses or
// releases the partition.
func (p *partition) run(ctx context.Context) {
	p.owned.Store(true)
	defer p.leave()
	p.wake() // the log may have unfolded events

	pauses, failures := wait.Backoff{First: firstWait, Last: lastWait}, wait.Backoff{First: firstBackoff, Last: lastBackoff}
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wakes:
		case <-retry.C:
		}
		waits, err := p.drain(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && eventlog.IsGone(ctx, p.projector.cfg.Pool, p.id):
			retry.Reset(failures.Next())
		case err != nil:
			p.projector.metrics.failed.Inc()
			pause := failures.Next()
			p.projector.log.ErrorContext(ctx, "cannot fold, will try again", "partition", p.id, "error", err, "in", pause)
			retry.Reset(pause)
		case waits:
			retry.Reset(pauses.Next())
			failures.Reset()
		default:
			pauses.Reset()
			failures.Reset()
		}
	}
}

// leave records that the process no longer owns the partition. It clears the cache, since
// another owner may now change the rows.
func (p *partition) leave() {
	p.foldLock <- struct{}{}
	defer func() { <-p.foldLock }()
	p.owned.Store(false)
	p.ready, p.known = false, false
	p.cache.Clear()
	p.keys.Forget()
}

// drain folds batches until no further event can be read. waits reports that the log has events
// that must not be read until an open transaction has ended. Most transactions end within
// milliseconds.
func (p *partition) drain(ctx context.Context) (waits bool, err error) {
	for {
		// Acquire a slot for each batch and not for all batches, so that other partitions get
		// slots between the batches of a busy partition.
		select {
		case p.projector.slots <- struct{}{}:
		case <-ctx.Done():
			return false, nil
		}
		leave, ok := p.projector.cfg.Share.take(ctx)
		if !ok {
			<-p.projector.slots
			return false, nil
		}
		more, waits, err := p.step(ctx)
		leave()
		<-p.projector.slots
		if !readAgain(err) && (err != nil || !more) {
			return waits, err
		}
	}
}

// readAgain reports whether a batch failed with err because the state of the partition in
// memory was outdated. The state must then be read again, and the events folded again, at
// once.
func readAgain(err error) bool {
	return errors.Is(err, store.ErrFenced) || errors.Is(err, keys.ErrOutdated)
}

// step folds one batch. more reports that more events can be read now. waits reports that the
// log has events that must not be read until an open transaction has ended.
func (p *partition) step(ctx context.Context) (more, waits bool, err error) {
	p.foldLock <- struct{}{}
	defer func() { <-p.foldLock }()
	p.ready = false
	conn, err := p.projector.connections.take(ctx)
	if err != nil {
		return false, false, err
	}
	defer func() {
		if err != nil {
			conn.Release() // the pool closes the connection if it is inside a transaction
			return
		}
		p.projector.connections.keep(conn)
	}()

	if !p.known || !p.keys.Loaded() || !p.sameIncarnation(conn) {
		if err := p.reload(ctx, conn); err != nil {
			return false, false, err
		}
	}
	page, err := logread.Next(ctx, conn, p.id, p.cursor, &p.projector.open, &p.size)
	if err != nil {
		return false, false, err
	}
	p.projector.clock.Set(page.ReadAt)
	if len(page.Records) == 0 {
		p.caught(!page.Waits)
		return false, page.Waits, nil
	}

	start := time.Now()
	b := store.NewBatch(&page, &p.letters, p.id, len(p.projector.partitions))
	p.prepare(b)
	// Do not cancel a batch that has begun: if it commits, its updates must be published.
	batchCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), batchTimeout)
	defer cancel()
	r, err := b.Commit(batchCtx, conn.Conn(), p.tables, p.cache, p.keys, p.state, p.projector.cfg.Bus.HasSubscribers)
	if err != nil {
		p.failed(err)
		if batchCtx.Err() != nil {
			p.shrink(1) // the same batch would time out again
		}
		return false, false, fmt.Errorf("fold %d events after %s: %w", len(page.Records), p.cursor.Position, err)
	}
	took := time.Since(start)
	p.committed(b, r, start)
	p.logDead(slices.Concat(b.Dead, b.Refused))
	p.adapt(b.Events, took)
	p.caught(!page.More && !page.Waits)
	return page.More, page.Waits, nil
}

// caught sets ready to `up`. If `up` is true, it also wakes the appends that wait in takeReady
// until the log is folded.
func (p *partition) caught(up bool) {
	p.ready = up
	if up && p.caughtUp != nil {
		close(p.caughtUp)
		p.caughtUp = nil
	}
}

// prepare sets the generation in which a batch stores its event keys.
func (p *partition) prepare(b *store.Batch) {
	b.Generation = p.state.Generation
	if next := int(p.next.Load()); next == b.Generation+1 {
		b.Generation, b.Begins = next, true
	}
}

// failed is called if a batch has failed with err. Its commit may have succeeded all the same,
// so failed makes the loop read the state of the partition again.
func (p *partition) failed(err error) {
	p.known, p.ready, p.fenced = false, false, errors.Is(err, store.ErrFenced)
	if errors.Is(err, keys.ErrOutdated) {
		p.keys.Forget()
	}
}

// committed is called after the commit of a batch. It updates the partition, and queues the
// updates to publish.
func (p *partition) committed(b *store.Batch, r store.Result, start time.Time) {
	p.cursor, p.state.Generation = b.To, b.Generation
	p.state.Rooms = p.state.Rooms || b.OfRooms()
	p.reached = b.To.Position
	p.keysGrew()
	p.account(b, r, time.Since(start)) // before the updates: a client that receives one may look at the metrics
	p.trace(b, r, start)
	p.projector.notify(r.Updates)
	folded := FoldedBatch{Partition: p.id, From: b.From.Position, To: b.To.Position, Users: r.Users, Rooms: r.Rooms}
	for i := range b.Items {
		if e := &b.Items[i].Event; e.Data.Notifies() {
			folded.Notifying = append(folded.Notifying, e)
		}
	}
	p.projector.cfg.Folded(folded)
}

// sameIncarnation reports whether the epoch began in the incarnation of Postgres to which conn is
// connected. If not, Postgres was started or promoted after that, and may have lost commits.
func (p *partition) sameIncarnation(conn *pgxpool.Conn) bool {
	return p.state.Incarnation == incarnationOf(conn)
}

// reload reads the state of the partition, before the first batch and whenever the state may
// have changed. If it has changed, reload clears the cache and loads the event keys again. If
// clients may have received newer states than the tables have, reload begins a new epoch.
func (p *partition) reload(ctx context.Context, conn *pgxpool.Conn) error {
	before, state := p.cursor.Position, p.state
	if err := p.look(ctx, conn); err != nil {
		return err
	}
	if _, is := p.outdated(); is {
		if err := p.beginEpoch(ctx, conn); err != nil {
			return err
		}
	}
	if p.fenced && p.cursor.Position != before {
		p.projector.metrics.fenced.Inc()
		p.projector.log.WarnContext(ctx, "another projector folds this partition too; continuing from its position",
			"partition", p.id)
	}
	p.fenced = false
	if p.cursor.Position != before || !p.state.Same(&state) {
		p.cache.Clear()
		p.keys.Forget()
	}
	var err error
	if p.letters, err = store.LoadLetters(ctx, conn, p.id, p.cursor.Position, events.Position{TransactionID: math.MaxInt64}); err != nil {
		return err
	}
	if !p.keys.Loaded() {
		if err := p.keys.Load(ctx, conn.Conn(), p.state.Generation); err != nil {
			return err
		}
		p.keysChanged()
		p.projector.wakeMerging() // the former owner may have left keys to merge
	}
	p.projector.clock.Set(p.state.ReadAt)
	p.reached = p.cursor.Position
	p.known = true
	return nil
}

// look reads the position and the stored state of the partition.
func (p *partition) look(ctx context.Context, q events.Querier) (err error) {
	if p.cursor, err = logread.Load(ctx, q, p.id, ""); err != nil {
		return err
	}
	moves := p.state.Moves
	if p.state, err = store.LoadState(ctx, q, p.id); err == nil && p.state.Moves != moves {
		p.reached = events.Position{} // positions of the database from which the partition was moved do not count
	}
	return err
}

// account adds a batch to the metrics.
func (p *partition) account(b *store.Batch, r store.Result, took time.Duration) {
	m := p.projector.metrics
	m.folded.Add(float64(r.Folded))
	m.duplicates.Add(float64(r.Duplicates))
	m.deadLetters.Add(float64(len(b.Dead) + len(b.Refused)))
	if r.Leaps > 0 {
		m.leaps.Add(float64(r.Leaps))
		p.logLeaps(&r)
	}
	m.batchEvents.Observe(float64(b.Events))
	m.batchSeconds.Observe(took.Seconds())
	m.delaySeconds.Observe(max(0, p.projector.clock.Now().Sub(b.Oldest)).Seconds())
}

// shrink halves the greatest number of events of the next batch, but not below least.
func (p *partition) shrink(least int) {
	p.size.Events = min(p.size.Events, max(p.size.Events/2, least))
}

// adapt sets the greatest number of events of the next batch, after a batch of n events took
// the given time.
func (p *partition) adapt(n int, took time.Duration) {
	switch {
	case took > slowBatch:
		p.shrink(smallestRun)
	case took < fastBatch && n >= p.size.Events:
		p.size.Events = min(p.size.Events*2, p.projector.cfg.MaxBatch)
	}
}
