package events

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/log/eventlog"
)

// Publish validates evs and appends them in tx, which is a [pgx.Tx], or a [*sql.Tx] of any
// Postgres driver. The events exist if and only if tx commits. tx must be in the database that
// has the log.
//
// If tx stays open for long, only its own events are delayed. They are folded soon after tx
// commits. In the order of folding, they come after all events that were folded before this commit.
//
// Publish returns a [*BatchError] if events are invalid, or have a type or attribute that only
// badged may write: see [Event.CheckReserved]. After a BatchError, tx is still usable. Any other
// error wraps an error of Postgres: roll tx back.
func Publish(ctx context.Context, tx any, evs ...Event) (Receipt, error) {
	conn, err := transactionOf(tx)
	if err != nil {
		return Receipt{}, err
	}
	layout, err := readLayout(ctx, conn.queryRow)
	if err != nil {
		return Receipt{}, fmt.Errorf("find the event log: %w", err)
	}
	return publish(ctx, layout, conn, evs)
}

// Publish does what the function [Publish] does, but uses the layout that l has read before. If a
// partition was split in the meantime, it fails with an error that wraps [ErrNotHeld]: roll tx
// back, and repeat the transaction.
func (l *Log) Publish(ctx context.Context, tx any, evs ...Event) (Receipt, error) {
	conn, err := transactionOf(tx)
	if err != nil {
		return Receipt{}, err
	}
	layout, err := l.layoutIn(ctx, conn.queryRow)
	if err != nil {
		return Receipt{}, fmt.Errorf("find the event log: %w", err)
	}
	r, err := publish(ctx, layout, conn, evs)
	l.refused(err)
	return r, err
}

func publish(ctx context.Context, layout *Layout, tx transaction, evs []Event) (Receipt, error) {
	enc := encoder{layout: layout, held: func() (eventlog.Set, error) { return readHeld(ctx, tx.queryRow) }, now: time.Now()}
	rows, err := enc.rows(evs)
	if err != nil || len(rows) == 0 {
		return Receipt{}, err
	}
	for i := range rows {
		insert, args := rows[i].columns.InsertAnyDriver(Topic(rows[i].Partition))
		if err := tx.exec(ctx, insert, args...); err != nil {
			return Receipt{}, fmt.Errorf("append to partition %d: %w", rows[i].Partition, layout.refusal(rows[i].Partition, err))
		}
	}
	var token eventlog.Token
	if err := tx.queryRow(ctx, eventlog.TokenSQL, (*int64)(&token)); err != nil {
		return Receipt{}, fmt.Errorf("append %d events: %w", len(evs), err)
	}
	return receiptOf(token, rows), nil
}

// transaction is a caller's transaction.
type transaction interface {
	exec(ctx context.Context, query string, args ...any) error
	queryRow(ctx context.Context, query string, dest any, args ...any) error
}

// queryRow scans the only column of the only row of a query into dest.
type queryRow func(ctx context.Context, query string, dest any, args ...any) error

func transactionOf(tx any) (transaction, error) {
	switch tx := tx.(type) {
	case pgx.Tx:
		return pgxTransaction{tx}, nil
	case *sql.Tx:
		return sqlTransaction{tx}, nil
	}
	return nil, fmt.Errorf("publish within %T: want a pgx.Tx or a *sql.Tx", tx)
}

type pgxTransaction struct{ tx pgx.Tx }

func (t pgxTransaction) exec(ctx context.Context, query string, args ...any) error {
	_, err := t.tx.Exec(ctx, query, args...)
	return err
}

func (t pgxTransaction) queryRow(ctx context.Context, query string, dest any, args ...any) error {
	return t.tx.QueryRow(ctx, query, args...).Scan(dest)
}

type sqlTransaction struct{ tx *sql.Tx }

func (t sqlTransaction) exec(ctx context.Context, query string, args ...any) error {
	_, err := t.tx.ExecContext(ctx, query, args...)
	return err
}

func (t sqlTransaction) queryRow(ctx context.Context, query string, dest any, args ...any) error {
	return t.tx.QueryRowContext(ctx, query, args...).Scan(dest)
}

// metadata returns the metadata of e's message in the log: its trace context as JSON, or "" if
// it has none.
func (e *Event) metadata() (string, error) {
	if e.TraceParent == "" {
		return "", nil
	}
	m := map[string]string{"traceparent": e.TraceParent}
	if e.TraceState != "" {
		m["tracestate"] = e.TraceState
	}
	b, err := json.Marshal(m)
	return string(b), err
}
