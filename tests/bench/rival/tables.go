package rival

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/tests/bench/stream"
)

// tablesSQL creates the tables of Watermill.
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
	loadSQL = `SELECT last_seq, read_seq FROM conversations WHERE user_id = $1 AND conversation_id = $2 FOR UPDATE`
	keepSQL = `INSERT INTO conversations VALUES ($1, $2, $3, $4)
ON CONFLICT (user_id, conversation_id) DO UPDATE SET last_seq = excluded.last_seq, read_seq = excluded.read_seq`
	addSQL    = `UPDATE users SET total = total + $2 WHERE user_id = $1`
	totalsSQL = `SELECT coalesce(u.total, 0) FROM unnest($1::text[]) WITH ORDINALITY AS k (user_id, n)
LEFT JOIN users AS u USING (user_id) ORDER BY n`
)

// openPool connects to a database, and creates the tables and a row for each user.
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

func totals(ctx context.Context, pool *pgxpool.Pool, users []string) ([]int64, error) {
	rows, err := pool.Query(ctx, totalsSQL, users)
	if err != nil {
		return nil, fmt.Errorf("read totals: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// key names an event.
func key(e stream.Event) uuid.UUID { return uuid.NewSHA1(uuid.Nil, []byte(e.ID())) }
