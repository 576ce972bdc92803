package events

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/eventlog"
)

// Publish validates evs and appends them in tx, a [pgx.Tx] or a [*sql.Tx] of any
// Postgres driver: the events exist if and only if tx commits. tx must be on the
// database that has the log.
//
// A tx that stays open delays only its own events: they are folded soon after it
// commits, behind those that were folded before.
//
// It returns a [*BatchError] if events are invalid or have what only badged may write,
// see [Event.CheckReserved]; tx is then still usable. Any other error wraps that of
// Postgres: roll back.
func Publish(ctx context.Context, tx any, evs ...Event) (Receipt, error) {
	conn, err := transactionOf(tx)
	if err != nil {
		return Receipt{}, err
	}
	layout, err := eventlog.ReadLayout(ctx, conn.queryRow)
	if err != nil {
		return Receipt{}, fmt.Errorf("find the event log: %w", err)
	}
	return publish(ctx, layout, conn, evs)
}

// Publish is like the function [Publish], but saves its query for the layout. If a
// partition was split since the last call, it fails with an error that wraps
// [ErrNotHeld]: roll back, and do the transaction again.
func (l *Log) Publish(ctx context.Context, tx any, evs ...Event) (Receipt, error) {
	conn, err := transactionOf(tx)
	if err != nil {
		return Receipt{}, err
	}
	layout, err := l.core().LayoutIn(ctx, conn.queryRow)
	if err != nil {
		return Receipt{}, fmt.Errorf("find the event log: %w", err)
	}
	r, err := publish(ctx, layout, conn, evs)
	l.core().Refused(err)
	return r, err
}

func publish(ctx context.Context, layout *eventlog.Layout, tx transaction, evs []Event) (Receipt, error) {
	held := func() (eventlog.Set, error) { return eventlog.ReadHeld(ctx, tx.queryRow) }
	rows, err := encodeRows(layout, held, time.Now(), evs, false)
	if err != nil || len(rows) == 0 {
		return Receipt{}, err
	}
	for i := range rows {
		if err := tx.insert(ctx, &rows[i]); err != nil {
			return Receipt{}, fmt.Errorf("append to partition %d: %w", rows[i].Partition, layout.Refusal(rows[i].Partition, err))
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
	insert(ctx context.Context, rows *eventlog.Rows) error
	exec(ctx context.Context, query string, args ...any) error
	queryRow(ctx context.Context, query string, dest any, args ...any) error
}

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

func (t pgxTransaction) insert(ctx context.Context, rows *eventlog.Rows) error {
	sql, args := rows.Packed.Insert(Topic(rows.Partition))
	return t.exec(ctx, sql, args...)
}

func (t pgxTransaction) exec(ctx context.Context, query string, args ...any) error {
	_, err := t.tx.Exec(ctx, query, args...)
	return err
}

func (t pgxTransaction) queryRow(ctx context.Context, query string, dest any, args ...any) error {
	return t.tx.QueryRow(ctx, query, args...).Scan(dest)
}

type sqlTransaction struct{ tx *sql.Tx }

func (t sqlTransaction) insert(ctx context.Context, rows *eventlog.Rows) error {
	sql, args := rows.Packed.InsertAnyDriver(Topic(rows.Partition))
	return t.exec(ctx, sql, args...)
}

func (t sqlTransaction) exec(ctx context.Context, query string, args ...any) error {
	_, err := t.tx.ExecContext(ctx, query, args...)
	return err
}

func (t sqlTransaction) queryRow(ctx context.Context, query string, dest any, args ...any) error {
	return t.tx.QueryRowContext(ctx, query, args...).Scan(dest)
}

// metadata returns the message metadata of e in the log: its trace context, or "".
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
