// Package query runs SQL statements. If a statement fails, the error says what the statement was
// for.
//
// It does not know any table.
package query

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// One returns the only column of the only row of a query. An error says what the query was for,
// such as "read the time", and wraps the error of pgx.
func One[T any](ctx context.Context, q interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, action, sql string, args ...any,
) (value T, err error) {
	if err := q.QueryRow(ctx, sql, args...).Scan(&value); err != nil {
		return *new(T), fmt.Errorf("%s: %w", action, err)
	}
	return value, nil
}

// rower is a connection, a pool or a transaction.
type rower interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// All returns the rows of a query, each converted by `to`.
func All[T any](ctx context.Context, q rower, action string, to pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, _ := q.Query(ctx, sql, args...) // the rows have the error
	all, err := pgx.CollectRows(rows, to)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", action, err)
	}
	return all, nil
}

// Each scans each row of a query into targets, and then calls visit.
func Each(ctx context.Context, q rower, action, sql string, args, targets []any, visit func() error) error {
	rows, _ := q.Query(ctx, sql, args...) // the rows have the error
	if _, err := pgx.ForEachRow(rows, targets, visit); err != nil {
		return fmt.Errorf("%s: %w", action, err)
	}
	return nil
}

// Exec runs a statement without a result.
func Exec(ctx context.Context, q interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}, action, sql string, args ...any,
) error {
	if _, err := q.Exec(ctx, sql, args...); err != nil {
		return fmt.Errorf("%s: %w", action, err)
	}
	return nil
}
