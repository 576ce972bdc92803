package scenarios

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/badged/badged/migrations"
	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/measure"
	"github.com/badged/badged/tests/bench/rig"
)

// sqlPublishers is how many connections of a backend write at once.
const sqlPublishers = 4

// Statements of a backend. They get the number of the message, which is in the ids
// of the events.
const (
	backendTableSQL  = `CREATE TABLE message (id bigint PRIMARY KEY, body text NOT NULL)`
	backendInsertSQL = `INSERT INTO message VALUES ($1, 'Lunch at noon?')`
	twoUsersSQL      = `SELECT badged.publish(jsonb_build_object('specversion', '1.0', 'id', $1::bigint::text, 'source', '/chat', 'type', 'message.delivered',
    'data', jsonb_build_object('conversation_id', 'room', 'user_ids', jsonb_build_array('ann' || $1::bigint % 1000, 'bob' || $1::bigint % 1000), 'seq', $1::bigint)))`
	thousandEventsSQL = `SELECT badged.publish_batch(jsonb_agg(jsonb_build_object('specversion', '1.0', 'id', $1::bigint || '/' || i, 'source', '/chat', 'type', 'message.delivered',
    'data', jsonb_build_object('conversation_id', 'room', 'user_ids', jsonb_build_array('ann' || i, 'bob' || i), 'seq', $1::bigint))))
FROM generate_series(1, 1000) AS i`
	largeGroupSQL = `SELECT badged.publish(jsonb_build_object('specversion', '1.0', 'id', $1::bigint::text, 'source', '/chat', 'type', 'message.delivered',
    'data', jsonb_build_object('conversation_id', 'room', 'user_ids', (SELECT jsonb_agg('user-' || i) FROM generate_series(1, 5000) AS i), 'seq', $1::bigint)))`
)

// publishSQL measures what publishing costs a backend in its own transactions.
func publishSQL() contest.Scenario {
	const alone, publishing, single, batch, group = "insert alone", "insert and publish", "publish", "publish_batch", "publish to a group"
	return contest.Scenario{
		Name: "publish-sql",
		Says: "a backend publishes in SQL: within the transaction that stores a message, and by itself",
		Main: "rate",
		Aims: []contest.Aim{
			{Measure: "rate", Of: publishing, Over: alone, AtLeast: 0.6},
			{Measure: "time", Of: single, AtMost: 0.15},
			{Measure: "time", Of: batch, AtMost: 0.03},
			{Measure: "time", Of: group, AtMost: 8},
		},
		Open: func(ctx context.Context, r *rig.Rig, s contest.Scale) (*contest.Contest, error) {
			timed := func(name, says string, statements ...string) contest.Side {
				return contest.Side{Name: name, Says: says, Run: func(ctx context.Context) ([]measure.Measure, error) {
					return backend(ctx, r, s.Duration, sqlPublishers, 1, statements)
				}}
			}
			// In one long transaction, so that neither commits nor round trips count.
			called := func(name, says string, events int, sql string) contest.Side {
				return contest.Side{Name: name, Says: says, Run: func(ctx context.Context) ([]measure.Measure, error) {
					return backend(ctx, r, s.Duration, 1, events, []string{sql})
				}}
			}
			return contest.Of(
				timed(alone, "4 connections, a transaction a message", backendInsertSQL),
				timed(publishing, "the same, and badged.publish for two users in the same transaction", backendInsertSQL, twoUsersSQL),
				called(single, "1 connection, one transaction; badged.publish for two users", 1, twoUsersSQL),
				called(batch, "1 connection, one transaction; badged.publish_batch of 1,000 events for two users each", 1000, thousandEventsSQL),
				called(group, "1 connection, one transaction; badged.publish for 5,000 users", 1, largeGroupSQL),
			)
		},
	}
}

// backend runs statements on some connections for a while: on one in a single
// transaction, on several in a transaction each time. Each time publishes so many
// events.
func backend(ctx context.Context, r *rig.Rig, duration time.Duration, connections, events int, statements []string) (_ []measure.Measure, err error) {
	url, drop, err := r.Database(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, drop(context.WithoutCancel(ctx))) }()
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	if _, err := migrations.Up(ctx, migrations.Config{Conn: cfg}); err != nil {
		return nil, err
	}
	conns := make([]*pgx.Conn, connections)
	for i := range conns {
		if conns[i], err = pgx.ConnectConfig(ctx, cfg); err != nil {
			return nil, fmt.Errorf("connect as a backend: %w", err)
		}
		defer func() { err = errors.Join(err, conns[i].Close(context.WithoutCancel(ctx))) }()
	}
	if _, err := conns[0].Exec(ctx, backendTableSQL); err != nil {
		return nil, fmt.Errorf("create the backend's table: %w", err)
	}
	var number atomic.Int64
	began := time.Now()
	writers, ctx := errgroup.WithContext(ctx)
	for _, conn := range conns {
		writers.Go(func() error {
			once := func(q pgx.Tx) error {
				n := number.Add(1)
				for _, sql := range statements {
					if _, err := q.Exec(ctx, sql, n); err != nil {
						return fmt.Errorf("write as a backend: %w", err)
					}
				}
				return nil
			}
			if connections > 1 {
				for time.Since(began) < duration {
					if err := pgx.BeginFunc(ctx, conn, once); err != nil {
						return err
					}
				}
				return nil
			}
			return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
				for time.Since(began) < duration {
					if err := once(tx); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
	if err := writers.Wait(); err != nil {
		return nil, err
	}
	took, done := time.Since(began), float64(number.Load()*int64(events))
	return []measure.Measure{
		measure.Of("rate", "/s", done/took.Seconds()),
		measure.Of("time", "ms", measure.Milliseconds(took)*float64(connections)/done),
	}, nil
}
