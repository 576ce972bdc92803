package events

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/internal/pg/pgfault"
)

// Receipt describes an append.
type Receipt struct {
	// TransactionID is the Postgres transaction that appended the events. An event is folded once
	// the projector's position is past this transaction in each partition of the event.
	TransactionID int64
	// Timeline is the Postgres timeline on which the transaction committed. A failover begins a new
	// timeline. Timeline is 0 if it is not known.
	Timeline int64
	// Partitions has, in ascending order, the partitions to which events were appended that are not
	// folded yet. The caller must wake the projectors of these partitions. A partition whose events
	// were folded in the same transaction is not listed.
	Partitions []int
	// Token is the position of the append that publishers get, if the log has several databases. If
	// it has one database, Token is "", and [Receipt.Position] computes the position from
	// TransactionID and Timeline.
	Token string
}

// Position returns the position of the append. If a publisher passes this position to a later read
// of badges, the read waits until the events are folded.
func (r Receipt) Position() string {
	if r.Token != "" {
		return r.Token
	}
	return strconv.FormatInt(int64(eventlog.NewToken(r.Timeline, r.TransactionID)), 10)
}

// receiptOf returns the receipt of a transaction that appended rows.
func receiptOf(token eventlog.Token, rows []Rows) Receipt {
	r := Receipt{TransactionID: token.TransactionID(), Timeline: token.Timeline()}
	for i := range rows {
		r.Partitions = append(r.Partitions, rows[i].Partition)
	}
	return r
}

// Append validates evs and appends all of them in one transaction of its own, or none. If the
// connection breaks during the commit, Append returns an error although the events may be
// durable. In this case call Append again with the same events: repeated events count once.
//
// To append in a transaction of your own, use [Publish].
//
// Append returns a [*BatchError] if events are invalid, or have a type or attribute that only
// badged may write: see [Event.CheckReserved]. Any other error wraps the error of Postgres.
func (l *Log) Append(ctx context.Context, evs ...Event) (Receipt, error) {
	if len(evs) == 0 {
		return Receipt{}, nil
	}
	if slices.ContainsFunc(evs, func(e Event) bool { return e.CheckReserved() != nil }) {
		_, err := checkAll(evs, false)
		return Receipt{}, err
	}
	return l.AppendOwn(ctx, evs...)
}

// AppendOwn does what [Log.Append] does, and also accepts events that [Event.CheckReserved]
// rejects. Only badged itself uses it.
func (l *Log) AppendOwn(ctx context.Context, evs ...Event) (Receipt, error) {
	return l.AppendWith(ctx, nil, evs...)
}

// AppendWith does what [Log.AppendOwn] does. If the function `queue` is not nil, the transaction
// first runs the statements that `queue` adds, even if there are no events. AppendWith may call
// `queue` several times, once for each attempt to append.
func (l *Log) AppendWith(ctx context.Context, queue func(*pgx.Batch), evs ...Event) (Receipt, error) {
	retried := false
	for {
		used := l.Layout()
		rows, err := l.encode(ctx, evs, false)
		if !retried && !l.shared.Load() && errors.Is(err, ErrNotHeld) {
			if retried, err = true, l.Refresh(ctx); err == nil {
				continue
			}
		}
		if err != nil || len(rows) == 0 && queue == nil {
			return Receipt{}, err
		}
		receipt, err := l.commit(ctx, queue, rows)
		switch {
		case err == nil:
			return receipt, nil
		case !l.refreshAfter(ctx, err, used): // if true, the partition was split: encode again
			return Receipt{}, fmt.Errorf("append %d events: %w", len(evs), err)
		}
	}
}

// AppendRows appends rows that [Log.Rows] returned. There must be at least one.
func (l *Log) AppendRows(ctx context.Context, rows []Rows) (Receipt, error) {
	return l.commit(ctx, nil, rows)
}

// commit appends rows in a transaction that first runs the statements that `queue` adds.
func (l *Log) commit(ctx context.Context, queue func(*pgx.Batch), rows []Rows) (Receipt, error) {
	// A pipeline without BEGIN is one implicit transaction, in one round trip.
	var batch pgx.Batch
	if queue != nil {
		queue(&batch)
	}
	done := 0 // the number of partitions whose INSERT has succeeded
	for i := range rows {
		rows[i].queue(&batch, nil).Exec(func(pgconn.CommandTag) error {
			done++
			return nil
		})
	}
	var token eventlog.Token
	batch.Queue(eventlog.TokenSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&token) })
	if err := eventlog.QueueRights(ctx, &batch); err != nil {
		return Receipt{}, err
	}
	if err := l.pool.SendBatch(ctx, &batch).Close(); err != nil {
		if pgfault.OfLock(err) && done < len(rows) {
			return Receipt{}, &pgfault.LockedError{Partition: waiting(rows, done, err), Err: err}
		}
		last := 0
		if len(rows) > 0 {
			last = rows[len(rows)-1].Partition // the rows are in ascending order
		}
		return Receipt{}, l.Layout().refusal(last, eventlog.Revoked(err))
	}
	return receiptOf(token, rows), nil
}

// waiting returns the partition whose INSERT failed to get a lock. err is the error of commit,
// whose transaction has one INSERT per partition. If the INSERT failed while it was being prepared,
// err contains its SQL, which names the partition. Otherwise the first `done` INSERTs succeeded,
// and the next INSERT failed.
func waiting(rows []Rows, done int, err error) int {
	preparing, ok := errors.AsType[pgx.ErrPreprocessingBatch](err)
	for i := range rows {
		if ok && strings.Contains(preparing.SQL(), "badged."+Topic(rows[i].Partition)+" ") {
			return rows[i].Partition
		}
	}
	return rows[done].Partition
}

// Append appends events in one transaction: see [Log.Append].
type Append func(ctx context.Context, evs ...Event) (Receipt, error)

// BatchError lists the invalid events of a call. None of the events of the call was appended.
type BatchError struct {
	Events []IndexedError
}

// IndexedError is the error of one event of a call. Index is the index of the event in the
// arguments, from 0.
type IndexedError struct {
	Index int
	Err   *InvalidError
}

// Error implements error.
func (e *BatchError) Error() string {
	first := e.Events[0]
	if len(e.Events) == 1 {
		return fmt.Sprintf("event %d: %v", first.Index, first.Err)
	}
	return fmt.Sprintf("%d events are invalid; event %d: %v", len(e.Events), first.Index, first.Err)
}
