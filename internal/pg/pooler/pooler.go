// Package pooler detects a connection pooler such as PgBouncer between badged and
// Postgres, and whether badged can work through it.
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

// Mode is how a pooler assigns sessions of Postgres to its clients.
type Mode int

const (
	// Direct is no pooler, or a transparent one.
	Direct Mode = iota
	// Session gives a client a session of Postgres until it disconnects.
	Session
)

// ErrShared is returned if a pooler may give each transaction or statement of a
// client another session.
var ErrShared = errors.New("the database URL leads to a connection pooler (such as PgBouncer with pool_mode = transaction) " +
	"that gives each transaction another session of Postgres, but badged owns partitions by session locks; " +
	"connect to Postgres directly, or give this database or user pool_mode = session")

// ErrOneSession is returned if a pooler has no second session for badged.
var ErrOneSession = errors.New("the database URL leads to a connection pooler (such as PgBouncer) that has no second session of Postgres free for badged: " +
	"raise its pool size (PgBouncer: default_pool_size) above what all processes of badged take together, or connect to Postgres directly")

const (
	// attempts is how often two sessions are compared. One comparison detects a pooler that
	// shares sessions only if no other client uses the pool at that moment.
	attempts = 5
	// patience is how long a second session may take to open.
	patience = 5 * time.Second
)

// Find returns the mode of the pooler that cfg connects through. It fails with
// ErrShared or ErrOneSession if badged cannot work through it.
//
// A pooler invents process ids for its clients; pg_backend_pid() returns the real id. Two
// clients that are connected at the same time see the same Postgres process only if the
// pooler shares its sessions.
func Find(ctx context.Context, cfg *pgx.ConnConfig) (Mode, error) {
	one, err := pgx.ConnectConfig(ctx, cfg.Copy())
	if err != nil {
		return Direct, fmt.Errorf("connect to the database: %w", err)
	}
	defer end(ctx, one)
	return Of(ctx, one)
}

// OfPool is [Find] with the first connection of a pool, which stays open.
func OfPool(ctx context.Context, pool *pgxpool.Pool) error {
	one, err := pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer one.Release()
	_, err = Of(ctx, one.Conn())
	return err
}

// Of is [Find] with a connection that is open.
func Of(ctx context.Context, one *pgx.Conn) (Mode, error) {
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
		// Ask twice, since a pooler may alternate between two sessions.
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

// oneSession returns ErrOneSession if a second session took too long, and err
// otherwise.
func oneSession(ctx, second context.Context, err error) error {
	if ctx.Err() == nil && second.Err() != nil {
		return ErrOneSession
	}
	return err
}

// backend returns the Postgres process that answers. It prepares no statement,
// since poolers may not support it.
func backend(ctx context.Context, conn *pgx.Conn) (pid uint32, err error) {
	if err := conn.QueryRow(ctx, `SELECT pg_backend_pid()`, pgx.QueryExecModeSimpleProtocol).Scan(&pid); err != nil {
		return 0, fmt.Errorf("read pg_backend_pid: %w", err)
	}
	return pid, nil
}

func end(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // it may be broken already
}
