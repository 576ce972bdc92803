package projector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/appending"
	"github.com/badged/badged/internal/eventlog"
	"github.com/badged/badged/internal/pgwire"
	"github.com/badged/badged/projector/internal/store"
)

// largeAppend is the most events that Append folds itself. The loops fold more
// of them in one transaction, and several partitions at once.
const largeAppend = 500

// Append validates evs and appends them to the log in one transaction, which
// also folds them where this projector owns the partition and has folded
// everything before. That saves a transaction, reading the log and waking a
// loop; badges have changed when Append returns. Other partitions are those of
// the receipt; wake their projectors.
//
// Errors and what they mean are those of [events.Log.Append]. It is safe for
// concurrent use. Calls for the same partition wait for each other for a moment,
// then leave the events to the loop, so combine small calls before it. ADR 54 has the reasons.
func (p *Projector) Append(ctx context.Context, evs ...events.Event) (events.Receipt, error) {
	if len(evs) > largeAppend {
		return appending.To(p.cfg.Log)(ctx, evs...)
	}
	rows, err := p.eventLog().Rows(ctx, evs)
	if errors.Is(err, events.ErrNotHeld) {
		return appending.To(p.cfg.Log)(ctx, evs...) // which follows a split
	}
	if err != nil || len(rows) == 0 {
		return events.Receipt{}, err
	}
	// Finish a transaction once it has begun: what it commits must be published.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), batchTimeout)
	defer cancel()
	began := time.Now()
	a := directAppend{projector: p, rows: rows, at: p.clock.Now()}
	a.join(ctx)
	receipt, err := a.commit(ctx)
	a.leave(err, began)
	var pgErr *pgconn.PgError
	if readAgain(err) || errors.Is(err, errNotBegun) || errors.As(err, &pgErr) {
		// The transaction did not commit. Publishers depend on the log only: if
		// something else hindered it, the loop tries again and reports that.
		return appending.To(p.cfg.Log)(ctx, evs...)
	}
	if err != nil {
		return events.Receipt{}, fmt.Errorf("append %d events: %w", len(evs), err)
	}
	return receipt, nil
}

// eventLog returns what only badged does with the log.
func (p *Projector) eventLog() *eventlog.Log[events.Event] {
	return (*eventlog.Log[events.Event])(p.cfg.Log)
}

// directAppend is a transaction that appends rows and folds them in some partitions.
type directAppend struct {
	projector *Projector
	rows      []eventlog.Rows
	// at is when the rows are appended, by the database's clock.
	at time.Time
	// parts are the partitions that fold, whose turns are taken; the others only
	// get rows.
	parts []directPart
}

// directPart is one of the partitions that fold.
type directPart struct {
	partition *partition
	batch     *store.Batch
	result    store.Result
}

// turnPatience is how long an append waits for the loops of its partitions: longer
// than a batch of a few events takes.
const turnPatience = 5 * time.Millisecond

// join takes the turns of the partitions that can fold the rows. All appends take
// them in ascending order, and a loop takes only its own.
func (a *directAppend) join(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	waits := false // start no timer before: it may wake a thread
	for i := range a.rows {
		part := a.projector.partition(a.rows[i].Partition)
		if !part.owned.Load() {
			continue
		}
		if !part.tryReady() {
			if !waits {
				waits = true
				defer time.AfterFunc(a.projector.turnPatience, cancel).Stop()
			}
			if !part.takeReady(ctx) {
				continue
			}
		}
		if b := a.batch(part, &a.rows[i]); b != nil {
			a.parts = append(a.parts, directPart{partition: part, batch: b})
		} else {
			<-part.turn
		}
	}
}

// tryReady takes the turn of a partition if that is free and everything in the log
// is folded.
func (p *partition) tryReady() bool {
	select {
	case p.turn <- struct{}{}:
	default:
		return false
	}
	if p.foldsAppends() {
		return true
	}
	<-p.turn
	return false
}

// takeReady takes the turn of a partition once everything in the log is folded, and
// reports false if ctx is done before. If appends did not let the loop catch up, it
// would never do so: behind each append there is a younger one of other partitions,
// for which a loop waits.
func (p *partition) takeReady(ctx context.Context) bool {
	for p.take(ctx) {
		if p.foldsAppends() {
			return true
		}
		if p.caughtUp == nil {
			p.caughtUp = make(chan struct{})
		}
		caughtUp := p.caughtUp
		<-p.turn
		select {
		case <-caughtUp:
		case <-ctx.Done():
			return false
		}
	}
	return false
}

// foldsAppends reports whether appends may fold their events. The caller has the
// turn.
func (p *partition) foldsAppends() bool { return p.ready && p.known && p.keys.Loaded() }

// take takes the turn of a partition, and reports false if ctx is done before.
func (p *partition) take(ctx context.Context) bool {
	select {
	case p.turn <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// batch returns the batch that appends rows and folds them, nil if the loop must
// fold them.
func (a *directAppend) batch(part *partition, rows *eventlog.Rows) *store.Batch {
	b, err := store.NewAppend(part.cursor, rows, a.at, part.id, len(a.projector.partitions))
	if err != nil { // the loop makes it a dead letter
		return nil
	}
	part.prepare(b)
	return b
}

// lockPatience is how long the transaction waits for a lock, such as that of a
// rebuild that swaps tables: publishers wait behind it.
const lockPatience = 200 * time.Millisecond

// errNotBegun means that the transaction was not sent.
var errNotBegun = errors.New("the transaction was not begun")

// commit sends the transaction, after loading the rows that it needs and that
// are not cached.
func (a *directAppend) commit(ctx context.Context) (receipt events.Receipt, err error) {
	if len(a.parts) == 0 {
		token, err := a.projector.eventLog().AppendRows(ctx, a.rows)
		if err != nil {
			return receipt, err
		}
		return events.Receipt{TransactionID: token.TransactionID(), Timeline: token.Timeline(), Partitions: eventlog.Partitions(a.rows)}, nil
	}
	conn, err := a.projector.appending.take(ctx)
	if err != nil {
		return receipt, fmt.Errorf("%w: %w", errNotBegun, err)
	}
	defer a.projector.appending.keep(conn) // the pool drops a broken one
	for i := range a.parts {
		if !a.parts[i].partition.sameIncarnation(conn) {
			return receipt, fmt.Errorf("%w: Postgres was started or promoted since", errNotBegun)
		}
	}

	if err := store.Load(ctx, conn, a.queueLoads, a.queueMoreLoads); err != nil {
		return receipt, fmt.Errorf("%w: load: %w", errNotBegun, err)
	}
	var writes pgx.Batch
	size := 0
	for i := range a.rows {
		size += a.rows[i].QueueAt(&writes, a.at)
	}
	folds := 0
	for i := range a.rows {
		if folds < len(a.parts) && a.parts[folds].partition.id == a.rows[i].Partition {
			part := &a.parts[folds]
			if part.result, err = part.batch.Fold(); err != nil {
				return receipt, fmt.Errorf("%w: %w", errNotBegun, err)
			}
			size += part.batch.QueueWrites(&writes, part.partition.tables)
			folds++
			continue
		}
		receipt.Partitions = append(receipt.Partitions, a.rows[i].Partition)
	}
	if err := eventlog.QueueRights(ctx, &writes); err != nil {
		return receipt, err
	}
	pgwire.Reserve(conn.Conn(), size)
	if err := conn.SendBatch(ctx, &writes).Close(); err != nil {
		return receipt, store.Outcome(eventlog.Revoked(err))
	}
	receipt.TransactionID, receipt.Timeline = a.parts[0].batch.To.TransactionID, timelineOf(incarnationOf(conn))
	return receipt, nil
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

// leave ends the turns of the partitions after the transaction has ended with err.
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
		<-part.turn
	}
	if errors.Is(err, store.ErrFenced) {
		a.projector.metrics.refused.Inc()
	}
}
