package rival

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/tests/bench/stream"
)

// RowConnections is the number of concurrent transactions of Rows.
const RowConnections = 16

// tablesSQL creates the tables of the rivals in Postgres.
const tablesSQL = `
CREATE TABLE seen (event uuid PRIMARY KEY);
CREATE TABLE users (
    user_id text PRIMARY KEY,
    total   bigint NOT NULL CHECK (total >= 0)
) WITH (fillfactor = 80);
CREATE TABLE conversations (
    user_id         text NOT NULL,
    conversation_id text NOT NULL,
    last_seq        bigint NOT NULL,
    read_seq        bigint NOT NULL,
    PRIMARY KEY (user_id, conversation_id)
) WITH (fillfactor = 80);`

// Statements of one event.
const (
	seenSQL = `INSERT INTO seen VALUES ($1) ON CONFLICT DO NOTHING`
	lockSQL = `SELECT FROM users WHERE user_id = $1 FOR UPDATE`
	loadSQL = `SELECT last_seq, read_seq FROM conversations WHERE user_id = $1 AND conversation_id = $2 FOR UPDATE`
	keepSQL = `INSERT INTO conversations VALUES ($1, $2, $3, $4)
ON CONFLICT (user_id, conversation_id) DO UPDATE SET last_seq = excluded.last_seq, read_seq = excluded.read_seq`
	addSQL    = `UPDATE users SET total = total + $2 WHERE user_id = $1`
	totalsSQL = `SELECT coalesce(u.total, 0) FROM unnest($1::text[]) WITH ORDINALITY AS k (user_id, n)
LEFT JOIN users AS u USING (user_id) ORDER BY n`
)

// Rows applies each event in a separate transaction, which locks the rows that
// it changes.
type Rows struct{ pool *pgxpool.Pool }

// NewRows makes the tables and a row for each user.
func NewRows(ctx context.Context, url string, users int) (*Rows, error) {
	pool, err := openPool(ctx, url, RowConnections, users)
	return &Rows{pool}, err
}

func openPool(ctx context.Context, url string, connections int32, users int) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = connections
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	all := make([]string, users)
	for i := range all {
		all[i] = stream.UserID(int32(i))
	}
	_, err = pool.Exec(ctx, tablesSQL)
	if err == nil {
		_, err = pool.Exec(ctx, `INSERT INTO users SELECT unnest($1::text[]), 0`, all)
	}
	if err == nil {
		_, err = pool.Exec(ctx, `ANALYZE users`)
	}
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("make the tables: %w", err)
	}
	return pool, nil
}

// Apply applies events one by one.
func (r *Rows) Apply(ctx context.Context, events []stream.Event) error {
	conn, err := r.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	for _, e := range events {
		if err := apply(ctx, conn.Conn(), e); err != nil {
			return fmt.Errorf("apply an event: %w", err)
		}
	}
	return nil
}

// apply takes two round trips. Every transaction locks the user's row first, which
// prevents deadlocks.
func apply(ctx context.Context, conn *pgx.Conn, e stream.Event) error {
	user, conversation := e.UserID(), e.ConversationID()
	fresh, was := false, state{}
	var reads pgx.Batch
	reads.Queue(`BEGIN`)
	reads.Queue(seenSQL, key(e)).Exec(func(tag pgconn.CommandTag) error { fresh = tag.RowsAffected() > 0; return nil })
	reads.Queue(lockSQL, user)
	reads.Queue(loadSQL, user, conversation).QueryRow(func(row pgx.Row) error {
		err := row.Scan(&was.last, &was.read)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	if err := conn.SendBatch(ctx, &reads).Close(); err != nil {
		return err
	}
	if !fresh {
		_, err := conn.Exec(ctx, `ROLLBACK`)
		return err
	}
	now := was.after(e)
	var writes pgx.Batch
	if now != was {
		writes.Queue(keepSQL, user, conversation, now.last, now.read)
		writes.Queue(addSQL, user, now.unread()-was.unread())
	}
	writes.Queue(`COMMIT`)
	return conn.SendBatch(ctx, &writes).Close()
}

// Settle returns at once: applied events count immediately.
func (r *Rows) Settle(context.Context) error { return nil }

// Totals returns the totals of users.
func (r *Rows) Totals(ctx context.Context, users []string) ([]int64, error) {
	return totals(ctx, r.pool, users)
}

func totals(ctx context.Context, pool *pgxpool.Pool, users []string) ([]int64, error) {
	rows, err := pool.Query(ctx, totalsSQL, users)
	if err != nil {
		return nil, fmt.Errorf("read totals: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// Close closes the connections.
func (r *Rows) Close(context.Context) error {
	r.pool.Close()
	return nil
}

// key names an event.
func key(e stream.Event) uuid.UUID { return uuid.NewSHA1(uuid.Nil, []byte(e.ID())) }
