// Package pooler detects a connection pooler, such as PgBouncer, between badged and Postgres. It
// checks whether badged can work through the pooler.
//
// The package does not know tables or locks of badged. ADR 115 has the reasons.
package pooler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Mode is how a pooler assigns Postgres sessions to its clients.
type Mode int

const (
	// Direct means that there is no pooler, or that it cannot be distinguished from Postgres.
	Direct Mode = iota
	// Session means that a client keeps its Postgres session until it disconnects.
	Session
)

// ErrShared means that the pooler may run each transaction or statement of a client in a
// different Postgres session.
var ErrShared = errors.New("the database URL leads to a connection pooler (such as PgBouncer with pool_mode = transaction) " +
	"that gives each transaction another session of Postgres, but badged owns partitions by session locks; " +
	"connect to Postgres directly, or give this database or user pool_mode = session")

// ErrOneSession means that a second connection through the pooler got no Postgres session of its
// own in time.
var ErrOneSession = errors.New("the database URL leads to a connection pooler (such as PgBouncer) that has no second session of Postgres free for badged: " +
	"raise its pool size (PgBouncer: default_pool_size) above what all processes of badged take together, or connect to Postgres directly")

const (
	// attempts is how often the Postgres processes of two connections are compared. One
	// comparison would not suffice while other clients use the pooler.
	attempts = 5
	// patience limits the time for opening the second connection and comparing its Postgres
	// process.
	patience = 5 * time.Second
)

// Find returns the mode of the pooler between this process and the database of cfg. It fails with
// ErrShared or ErrOneSession if badged cannot work through the pooler.
//
// Find detects a pooler by process ids: a pooler sends an invented id when a client connects, but
// pg_backend_pid() returns the real id. If two connections that are open at the same time have
// the same Postgres process, or if the process of one connection changes, the pooler shares its
// sessions among clients.
func Find(ctx context.Context, cfg *pgx.ConnConfig) (Mode, error) {
	one, err := pgx.ConnectConfig(ctx, cfg.Copy())
	if err != nil {
		return Direct, fmt.Errorf("connect to the database: %w", err)
	}
	defer end(ctx, one)
	return ModeOf(ctx, one)
}

// OfPool is like [Find], but takes the first of its two connections from a pool, and returns no
// mode.
func OfPool(ctx context.Context, pool *pgxpool.Pool) error {
	one, err := pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer one.Release()
	_, err = ModeOf(ctx, one.Conn())
	return err
}

// ModeOf is like [Find], with an open connection.
func ModeOf(ctx context.Context, one *pgx.Conn) (Mode, error) {
	first, err := backend(ctx, one)
	if err != nil || first == one.PgConn().PID() {
		return Direct, err
	}
	second, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	other, err := pgx.ConnectConfig(second, one.Config())
	if err != nil {
		return Session, oneSession(ctx, second, err)
	}
	defer end(ctx, other)
	for range attempts {
		its, err := backend(second, other)
		if err != nil {
			return Session, oneSession(ctx, second, err)
		}
		if its == first {
			return Session, ErrShared
		}
		// Query twice, since a pooler may alternate between two sessions.
		for range 2 {
			again, err := backend(ctx, one)
			if err != nil {
				return Session, err
			}
			if again != first {
				return Session, ErrShared
			}
		}
	}
	return Session, nil
}

// oneSession returns ErrOneSession if the time for the second connection is over: the context
// `second` is done, but ctx is not. Otherwise it returns err.
func oneSession(ctx, second context.Context, err error) error {
	if ctx.Err() == nil && second.Err() != nil {
		return ErrOneSession
	}
	return err
}

// backend returns the id of the Postgres process that runs the query. It uses no prepared
// statement, since poolers may not support prepared statements.
func backend(ctx context.Context, conn *pgx.Conn) (pid uint32, err error) {
	if err := conn.QueryRow(ctx, `SELECT pg_backend_pid()`, pgx.QueryExecModeSimpleProtocol).Scan(&pid); err != nil {
		return 0, fmt.Errorf("read pg_backend_pid: %w", err)
	}
	return pid, nil
}

func end(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // the connection may be broken already
}
