package eventlog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/internal/eventbatch"
	"github.com/badged/badged/internal/pgfault"
	"github.com/badged/badged/internal/pgwire"
)

// Rows are events as rows of the log of one partition.
type Rows struct {
	Partition int
	// Events has a row an event; Packed is what is inserted.
	Events, Packed *eventbatch.Columns
	// inserted, unless nil, is called once Postgres has done the statement.
	inserted func()
}

// Queue adds the statements that append the rows to batch, and returns roughly how
// many bytes they take on the wire.
func (r *Rows) Queue(batch *pgx.Batch) int {
	sql, args := r.Packed.Insert(Topic(r.Partition))
	args[0] = r.Packed.Leading()
	return r.queue(batch, sql, args)
}

// waiting returns the partition of the rows whose statement failed: after done others had
// succeeded, or while all were prepared.
func waiting(rows []Rows, done int, err error) int {
	preparing, ok := errors.AsType[pgx.ErrPreprocessingBatch](err)
	for i := range rows {
		if ok && strings.Contains(preparing.SQL(), "badged."+Topic(rows[i].Partition)+" ") {
			return rows[i].Partition
		}
	}
	return rows[done].Partition
}

// QueueAt is like Queue, and sets the time at which the rows were appended.
func (r *Rows) QueueAt(batch *pgx.Batch, at time.Time) int {
	sql, args := r.Packed.InsertAt(Topic(r.Partition), at)
	return r.queue(batch, sql, args)
}

func (r *Rows) queue(batch *pgx.Batch, sql string, args []any) int {
	queued := batch.Queue(sql, args...)
	if r.inserted != nil {
		queued.Exec(func(pgconn.CommandTag) error {
			r.inserted()
			return nil
		})
	}
	return r.Packed.Size()
}

// Partitions returns the partitions of rows.
func Partitions(rows []Rows) []int {
	var partitions []int
	for i := range rows {
		partitions = append(partitions, rows[i].Partition)
	}
	return partitions
}

// Append encodes evs and appends them in a transaction of its own, which first runs the
// statements that queue adds, unless it is nil. It returns the rows too; without events
// and statements there are none.
func (l *Log[E]) Append(ctx context.Context, queue func(*pgx.Batch), evs []E) (Token, []Rows, error) {
	retried := false
	for {
		rows, err := l.Rows(ctx, evs)
		if !retried && !l.shared.Load() && errors.Is(err, ErrNotHeld) {
			if retried, err = true, l.Refresh(ctx); err == nil {
				continue
			}
		}
		if err != nil || len(rows) == 0 && queue == nil {
			return 0, nil, err
		}
		token, err := l.appendRows(ctx, queue, rows)
		switch {
		case err == nil:
			return token, rows, nil
		case !l.follow(ctx, err): // else the partition was split
			return 0, nil, fmt.Errorf("append %d events: %w", len(evs), err)
		}
	}
}

// Rows encodes evs for a transaction that does more than append.
func (l *Log[E]) Rows(ctx context.Context, evs []E) ([]Rows, error) { return l.encode(ctx, l, evs) }

// AppendRows appends what [Log.Rows] returned, which must not be empty.
func (l *Log[E]) AppendRows(ctx context.Context, rows []Rows) (Token, error) {
	return l.appendRows(ctx, nil, rows)
}

func (l *Log[E]) appendRows(ctx context.Context, queue func(*pgx.Batch), rows []Rows) (token Token, err error) {
	// A pipeline without BEGIN is one implicit transaction in one round trip.
	var batch pgx.Batch
	if queue != nil {
		queue(&batch)
	}
	size := 0
	done := 0 // of rows, in their order
	for i := range rows {
		rows[i].inserted = func() { done++ }
		size += rows[i].Queue(&batch)
	}
	batch.Queue(TokenSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&token) })
	if err := QueueRights(ctx, &batch); err != nil {
		return 0, err
	}
	if err := l.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		pgwire.Reserve(conn.Conn(), size)
		return conn.SendBatch(ctx, &batch).Close()
	}); err != nil {
		last := 0
		if len(rows) > 0 {
			last = rows[len(rows)-1].Partition // the greatest
		}
		if pgfault.OfLock(err) && done < len(rows) {
			return 0, &pgfault.LockedError{Partition: waiting(rows, done, err), Err: err}
		}
		return 0, l.Layout().Refusal(last, Revoked(err))
	}
	return token, nil
}
