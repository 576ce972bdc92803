package events

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Publish validates evs and appends them in tx, a [pgx.Tx] or a [*sql.Tx] of any
// Postgres driver: the events exist if and only if tx commits. tx must be on the
// database that has the log.
//
// A tx that stays open delays only its own events: they are folded soon after it
// commits, behind those that were folded before.
//
// Messages to a room go to the users who are members as tx sees it. In a transaction
// that is not READ COMMITTED, those are the members when its snapshot was taken.
//
// It returns a [*BatchError] if events are invalid or have what only badged may write,
// see [Event.CheckPublished]; tx is then still usable. Any other error wraps that of
// Postgres: roll back.
func Publish(ctx context.Context, tx any, evs ...Event) (Receipt, error) {
	conn, err := transactionOf(tx)
	if err != nil {
		return Receipt{}, err
	}
	layout, err := readLayout(func(dest any) error { return conn.queryRow(ctx, layoutSQL, dest) })
	if err != nil {
		return Receipt{}, fmt.Errorf("find the event log: %w", err)
	}
	return layout.publish(ctx, conn, evs)
}

// Publish is like the function [Publish], but saves its query for the layout. If a
// partition was split since the last call, it fails with an error that wraps
// [ErrNotHeld]: roll back, and do the transaction again.
func (l *Log) Publish(ctx context.Context, tx any, evs ...Event) (Receipt, error) {
	conn, err := transactionOf(tx)
	if err != nil {
		return Receipt{}, err
	}
	if l.stale.Load() {
		layout, err := readLayout(func(dest any) error { return conn.queryRow(ctx, layoutSQL, dest) })
		if err != nil {
			return Receipt{}, fmt.Errorf("find the event log: %w", err)
		}
		l.stale.Store(false)
		l.SetLayout(layout)
	}
	r, err := l.Layout().publish(ctx, conn, evs)
	if l.alone && errors.Is(err, ErrNotHeld) {
		l.stale.Store(true) // tx can read nothing any more
	}
	return r, err
}

func (l *Layout) publish(ctx context.Context, tx transaction, evs []Event) (Receipt, error) {
	inserts, changes, err := l.prepare(ctx, storedDirectory{tx.queryRow}, evs, false)
	if err != nil {
		return Receipt{}, err
	}
	if len(inserts) == 0 {
		return Receipt{}, nil
	}
	if err := changes.write(ctx, tx); err != nil {
		return Receipt{}, err
	}
	r := receiptOf(inserts)
	for _, in := range inserts {
		if err := tx.insert(ctx, in); err != nil {
			return Receipt{}, fmt.Errorf("append to partition %d: %w", in.partition, notHeld(notMigrated(err)))
		}
	}
	var token int64
	if err := tx.queryRow(ctx, tokenSQL, &token); err != nil {
		return Receipt{}, fmt.Errorf("append %d events: %w", len(evs), err)
	}
	r.setToken(Token(token))
	return r, nil
}

// transaction is a caller's transaction.
type transaction interface {
	insert(ctx context.Context, in insert) error
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

func (t pgxTransaction) insert(ctx context.Context, in insert) error {
	sql, args := in.rows.Insert(Topic(in.partition))
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

func (t sqlTransaction) insert(ctx context.Context, in insert) error {
	sql, args := in.rows.InsertAnyDriver(Topic(in.partition))
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
