package projector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/fold/store"
	"github.com/badged/badged/internal/log/eventlog"
)

// largeAppend is the maximum number of events that Append folds itself. For more events, the
// loops of the partitions are faster: they fold larger batches, and several partitions at
// once.
const largeAppend = 500

// Append validates evs and appends them to the log in one transaction. This transaction also
// folds the events in each partition that this projector owns and has folded completely. So
// the badges in these partitions have changed when Append returns. This saves a second
// transaction, reading the log, and waking a loop. The receipt names the partitions in which
// the events are not folded; the caller must wake the projectors of these partitions.
//
// Append returns the errors of [events.Log.Append], with the same meaning. It also refuses an
// event as invalid if folding it would make it a dead letter: the event uses the id of a room
// for an ordinary conversation, or the reverse. Append is safe for concurrent use. Concurrent
// calls for the same partition wait for each other, but only for a few milliseconds; then they
// append without folding, and the loop folds. So combine small calls into one. ADR 54 has the
// reasons.
func (p *Projector) Append(ctx context.Context, evs ...events.Event) (events.Receipt, error) {
	if len(evs) > largeAppend {
		return p.cfg.Log.AppendOwn(ctx, evs...)
	}
	rows, err := p.cfg.Log.Rows(ctx, evs)
	if errors.Is(err, events.ErrNotHeld) {
		return p.cfg.Log.AppendOwn(ctx, evs...) // AppendOwn handles partitions that were split
	}
	if err != nil || len(rows) == 0 {
		return events.Receipt{}, err
	}
	// Do not cancel a transaction that has begun: if it commits, its updates must be
	// published.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), batchTimeout)
	defer cancel()
	began := time.Now()
	a := directAppend{projector: p, rows: rows, appendedAt: p.clock.Now()}
	a.join(ctx)
	receipt, err := a.commit(ctx)
	a.leave(err, began)
	if refused, ok := errors.AsType[*store.RefusedError](err); ok {
		return events.Receipt{}, invalid(evs, *refused)
	}
	var pgErr *pgconn.PgError
	if readAgain(err) || errors.Is(err, errNotBegun) || errors.As(err, &pgErr) {
		// The transaction did not commit. Publishing must not depend on folding, so append
		// without folding. The loop folds later, tries again after errors, and reports them.
		return p.cfg.Log.AppendOwn(ctx, evs...)
	}
	if err != nil {
		return events.Receipt{}, fmt.Errorf("append %d events: %w", len(evs), err)
	}
	return receipt, nil
}

// invalid returns the error of Append for the events in `refused`.
func invalid(evs []events.Event, refused store.RefusedError) *events.BatchError {
	why := make(map[uuid.UUID]events.FieldError, len(refused))
	for _, r := range refused {
		why[r.Key] = r.Why
	}
	bad := &events.BatchError{}
	for i := range evs {
		if f, ok := why[evs[i].Key()]; ok {
			bad.Events = append(bad.Events, events.IndexedError{Index: i, Err: &events.InvalidError{Fields: []events.FieldError{f}}})
		}
	}
	return bad
}

// directAppend is a transaction that appends rows to the log and folds their events in some of
// the partitions.
type directAppend struct {
	projector *Projector
	rows      []events.Rows
	// appendedAt is the append time of the rows, by the database's clock.
	appendedAt time.Time
	// parts are the partitions in which the transaction folds: while it runs, it has their fold
	// locks. In the other partitions, the transaction only appends.
	parts []directPart
}

// directPart is one of the partitions in which the transaction folds.
type directPart struct {
	partition *partition
	batch     *store.Batch
	result    store.Result
}

// foldLockTimeout limits the total wait of an append for fold locks. A batch of a few events takes
// less time.
const foldLockTimeout = 5 * time.Millisecond

// join acquires the fold locks of the partitions in which the transaction can fold. It cannot
// deadlock: all appends acquire the locks in ascending order, and a loop acquires only its
// own.
func (a *directAppend) join(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	waits := false // whether the timer was started; starting it may wake a thread
	for i := range a.rows {
		part := a.projector.partition(a.rows[i].Partition)
		if !part.owned.Load() {
			continue
		}
		if !part.tryReady() {
			if !waits {
				waits = true
				defer time.AfterFunc(a.projector.foldLockTimeout, cancel).Stop()
			}
			if !part.takeReady(ctx) {
				continue
			}
		}
		if b := a.batch(part, &a.rows[i]); b != nil {
			a.parts = append(a.parts, directPart{partition: part, batch: b})
		} else {
			<-part.foldLock
		}
	}
}

// tryReady acquires the fold lock of a partition without waiting. It returns false if another
// caller has the lock, or if appends may not fold now.
func (p *partition) tryReady() bool {
	select {
	case p.foldLock <- struct{}{}:
	default:
		return false
	}
	if p.foldsAppends() {
		return true
	}
	<-p.foldLock
	return false
}

// takeReady waits until the log of a partition is folded completely, and acquires the fold
// lock. It returns false if ctx is done before. Appends must wait here: otherwise they would
// append more events, without folding them, while the loop is behind. The loop might then
// never catch up, since it waits for open transactions, and under load an append in another
// partition is always open.
func (p *partition) takeReady(ctx context.Context) bool {
	for p.take(ctx) {
		if p.foldsAppends() {
			return true
		}
		if p.caughtUp == nil {
			p.caughtUp = make(chan struct{})
		}
		caughtUp := p.caughtUp
		<-p.foldLock
		select {
		case <-caughtUp:
		case <-ctx.Done():
			return false
		}
	}
	return false
}

// foldsAppends reports whether appends may fold their events: all events in the log are
// folded, and the state of the partition is loaded. The caller must have the fold lock.
func (p *partition) foldsAppends() bool { return p.ready && p.known && p.keys.Loaded() }

// take acquires the fold lock of a partition, and returns false if ctx is done before.
func (p *partition) take(ctx context.Context) bool {
	select {
	case p.foldLock <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// batch returns a batch that appends rows and folds them. It returns nil if an event cannot be
// folded: the append then only appends the rows, and the loop folds them.
func (a *directAppend) batch(part *partition, rows *events.Rows) *store.Batch {
	b, err := store.NewAppend(part.cursor, rows, a.appendedAt, part.id, len(a.projector.partitions))
	if err != nil { // the loop makes the event a dead letter
		return nil
	}
	part.prepare(b)
	return b
}

// lockPatience is how long a statement of the transaction waits for a lock of the database, such as
// the lock of a rebuild that swaps tables. The publisher of the events waits for its response
// during this time.
const lockPatience = 200 * time.Millisecond

// errNotBegun means that the transaction was not sent to the database.
var errNotBegun = errors.New("the transaction was not begun")

// commit loads the rows that are not cached, then sends the transaction.
func (a *directAppend) commit(ctx context.Context) (receipt events.Receipt, err error) {
	if len(a.parts) == 0 {
		return a.projector.cfg.Log.AppendRows(ctx, a.rows)
	}
	conn, err := a.projector.appending.take(ctx)
	if err != nil {
		return receipt, fmt.Errorf("%w: %w", errNotBegun, err)
	}
	defer a.projector.appending.keep(conn) // the pool drops a broken connection
	for i := range a.parts {
		if !a.parts[i].partition.sameIncarnation(conn) {
			return receipt, fmt.Errorf("%w: Postgres was started or promoted since", errNotBegun)
		}
	}

	if err := store.Load(ctx, conn, a.queueLoads, a.queueMoreLoads); err != nil {
		return receipt, fmt.Errorf("%w: load: %w", errNotBegun, err)
	}
	var writes pgx.Batch
	for i := range a.rows {
		a.rows[i].QueueAt(&writes, a.appendedAt)
	}
	folds := 0
	for i := range a.rows {
		if folds < len(a.parts) && a.parts[folds].partition.id == a.rows[i].Partition {
			part := &a.parts[folds]
			if part.result, err = part.batch.Fold(); err != nil {
				return receipt, a.refuse(ctx, conn, i, part, err)
			}
			part.batch.QueueWrites(&writes, part.partition.tables)
			folds++
			continue
		}
		receipt.Partitions = append(receipt.Partitions, a.rows[i].Partition)
	}
	if err := eventlog.QueueRights(ctx, &writes); err != nil {
		return receipt, err
	}
	if err := conn.SendBatch(ctx, &writes).Close(); err != nil {
		return receipt, store.Outcome(eventlog.Revoked(err))
	}
	receipt.TransactionID, receipt.Timeline = a.parts[0].batch.To.TransactionID, timelineOf(incarnationOf(conn))
	return receipt, nil
}

// refuse is called if an event of a.rows[i] cannot be folded; refused is the reason. If the fence
// confirms that the cached rows are current, refuse returns `refused`. Otherwise another owner may
// have changed the rows, so the reason may be wrong: refuse then returns an error that wraps
// errNotBegun. The fence runs in a transaction that is rolled back.
func (a *directAppend) refuse(ctx context.Context, conn *pgxpool.Conn, i int, part *directPart, refused error) error {
	var checks pgx.Batch
	a.rows[i].QueueAt(&checks, a.appendedAt)
	part.batch.QueueFence(&checks, part.partition.tables)
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if err := tx.SendBatch(ctx, &checks).Close(); err != nil {
			return store.Outcome(err)
		}
		return refused
	})
	if !errors.Is(err, refused) {
		return fmt.Errorf("%w: %w", errNotBegun, err)
	}
	return refused
}

func (a *directAppend) queueLoads(loads *pgx.Batch) {
	for i := range a.parts {
		part := a.parts[i].partition
		a.parts[i].batch.QueueLoads(loads, part.tables, part.cache, part.keys, part.state)
	}
}

func (a *directAppend) queueMoreLoads(loads *pgx.Batch) {
	for i := range a.parts {
		a.parts[i].batch.QueueMoreLoads(loads, a.parts[i].partition.tables)
	}
}

// leave is called when the transaction has ended with err. It completes the batches, or
// abandons them after an error, and releases the fold locks of their partitions.
func (a *directAppend) leave(err error, began time.Time) {
	for i := range a.parts {
		part, b := a.parts[i].partition, a.parts[i].batch
		if err != nil {
			b.Abandon(part.cache)
			part.failed(err)
			part.wake()
		} else {
			b.Finish(&a.parts[i].result, part.tables, part.cache, a.projector.cfg.Bus.HasSubscribers)
			part.looked.Store(true)
			part.committed(b, a.parts[i].result, began)
		}
		<-part.foldLock
	}
	if errors.Is(err, store.ErrFenced) {
		a.projector.metrics.refused.Inc()
	}
}
