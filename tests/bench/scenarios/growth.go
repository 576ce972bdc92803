package scenarios

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/lag"
	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/measure"
	"github.com/badged/badged/tests/bench/rig"
	"github.com/badged/badged/tests/bench/stream"
	"github.com/badged/badged/tests/bench/ways"
)

// growth measures the cost of an event in larger databases.
func growth() contest.Scenario {
	const small, users, conversations, log = "small", "many users", "many conversations", "long log"
	const noBacklog, backlog = "no backlog", "backlog"
	return contest.Scenario{
		Name: "growth",
		Says: "the cost of an event in a small database and in one that has more of something",
		Main: "cost",
		Aims: []contest.Aim{
			{Measure: "cost", Of: users, Over: small, AtMost: 1.5},
			{Measure: "cost", Of: conversations, Over: small, AtMost: 1.5},
			{Measure: "cost", Of: log, Over: small, AtMost: 1.5},
			{Measure: "cost", Of: backlog, Over: noBacklog, AtMost: 1.5},
		},
		Open: func(ctx context.Context, r *rig.Rig, s contest.Scale) (_ *contest.Contest, err error) {
			grown := &contest.Contest{}
			var made []*grownDatabase
			grown.Close = func(ctx context.Context) error {
				var errs []error
				for _, g := range made {
					errs = append(errs, g.check(ctx), g.Close(ctx))
				}
				return errors.Join(errs...)
			}
			defer func() {
				if err == nil {
					return
				}
				for _, g := range made {
					err = errors.Join(err, g.Close(context.WithoutCancel(ctx)))
				}
			}()
			rows, err := logRows(r, s)
			if err != nil {
				return nil, err
			}
			for _, size := range []struct {
				name                 string
				users, conversations int
				log                  int
			}{
				{small, s.Pick(10_000, 100), 10, 0},
				{users, s.Pick(3_000_000, 1000), 2, 0},
				{conversations, s.Pick(5000, 20), 1000, 0},
				{log, s.Pick(10_000, 100), 10, rows},
			} {
				if !s.Runs(size.name) {
					continue
				}
				cfg := stream.Config{
					Users: size.users, Conversations: size.conversations, Before: 1,
					Reads: 0.1, Repeats: 0.01, Skew: 0.8, Seed: 4,
				}
				r.Log.Say("growth: filling a database: %s, %s rows of log", cfg, measure.FormatNumber(float64(size.log)))
				g, err := grow(ctx, r, cfg, size.log)
				if err != nil {
					return nil, err
				}
				made = append(made, g)
				says := fmt.Sprintf("%s; %s rows of log before; %s", cfg, measure.FormatNumber(float64(size.log)), bulk)
				grown.Sides = append(grown.Sides, contest.Side{Name: size.name, Says: says, Run: func(ctx context.Context) ([]measure.Measure, error) {
					return g.run(ctx, r, s.Duration)
				}})
			}
			for _, size := range []struct {
				name  string
				ahead int // backlog beyond the events to be folded
			}{{noBacklog, 0}, {backlog, s.Pick(5_000_000, 5000)}} {
				if !s.Runs(size.name) {
					continue
				}
				b := backlogged{fold: s.Pick(100_000, 500)}
				if b.grownDatabase, err = grow(ctx, r, stream.Config{
					Users: s.Pick(100_000, 100), Conversations: 10, Before: 1, Reads: 0.1, Repeats: 0.01, Skew: 0.8, Seed: 5,
				}, 0); err != nil {
					return nil, err
				}
				made = append(made, b.grownDatabase)
				r.Log.Say("growth: publishing a backlog of %d events", size.ahead)
				if err := b.publish(ctx, size.ahead); err != nil {
					return nil, err
				}
				says := fmt.Sprintf("%s events are folded, with %s before or after them", measure.FormatNumber(float64(b.fold)), measure.FormatNumber(float64(size.ahead)))
				grown.Sides = append(grown.Sides, contest.Side{Name: size.name, Says: says, Run: func(ctx context.Context) ([]measure.Measure, error) { return b.run(ctx, r) }})
			}
			return grown, nil
		},
	}
}

// logRowBytes is the disk space of a log row and its event key, with indexes and
// write-ahead log.
const logRowBytes = 1000

// logRows returns the length of a long log: 50 million rows, or what fits on half
// of the free disk.
func logRows(r *rig.Rig, s contest.Scale) (int, error) {
	free, err := rig.FreeBytes(r.Dir)
	return min(s.Pick(50_000_000, 5000), int(free/2/logRowBytes)), err
}

// grownDatabase is a filled database with a stream that continues from round to
// round.
type grownDatabase struct {
	url    string
	pool   *pgxpool.Pool
	stream *stream.Stream
	drop   func(context.Context) error
}

// grow makes a database in which every conversation of cfg has one read message,
// and whose log has the given number of folded rows.
func grow(ctx context.Context, r *rig.Rig, cfg stream.Config, logRows int) (_ *grownDatabase, err error) {
	url, drop, err := r.Database(ctx)
	if err != nil {
		return nil, err
	}
	g := &grownDatabase{url: url, stream: stream.New(cfg), drop: drop}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.Close(ctx))
		}
	}()
	if _, _, err := r.RunBinary(ctx, "migrate", "up", "--database-url="+url); err != nil {
		return nil, err
	}
	if g.pool, err = pgxpool.New(ctx, url); err != nil {
		return nil, err
	}
	if err := g.fill(ctx, cfg, logRows); err != nil {
		return nil, fmt.Errorf("fill a database: %w", err)
	}
	return g, r.Exec(ctx, "CHECKPOINT")
}

// Statements that fill a database. The names are those of package stream.
const (
	fillUsersSQL = `INSERT INTO badged.users (partition_id, version, total, mentions, user_id, categories)
SELECT badged.partition_of(id, s.partitions), $2, 0, 0, id, '{}'
FROM badged.settings AS s, generate_series(0, $1::integer - 1) AS u, concat('user-', lpad(u::text, 7, '0')) AS id`

	fillConversationsSQL = `INSERT INTO badged.conversations
       (partition_id, version, read_seq, last_seq, unread, mentions, level, delivered_hour, marked_unread,
        user_id, conversation_id, category)
SELECT partition_id, c + 1, 1, 1, 0, 0, 'all', 1, false,
       user_id, concat('talk-', substr(user_id, 6), '-', c), 'chat'
FROM badged.users, generate_series(0, $1::integer - 1) AS c`

	// The rows are as long as those of a stream.
	fillLogSQL = `INSERT INTO badged.%[1]s (uuid, payload, metadata, transaction_id)
SELECT md5(n::text)::uuid, convert_to('{"specversion":"1.0","id":"before-' || n || '","source":"bench","type":"message.delivered",'
       '"time":"2026-01-01T00:00:00.123456789Z","data":{"conversation_id":"talk-0000000-1","user_ids":["user-0000000"],'
       '"seq":1,"sender_id":"somebody"}}', 'UTF8'), NULL, pg_current_xact_id()
FROM generate_series(%[2]d, %[3]d) AS n`

	// The log was written over the dedup window: a third of its events is in the
	// present generation, and the others are in the two before.
	fillGenerationsSQL = `INSERT INTO badged.dedup_generations SELECT partition_id, g, '0', 0 FROM badged.partitions, generate_series(2, 3) AS g`

	// Sorted runs of the keys, without filters, as if each user had the hash zero. A
	// prefix of a key is a bigint with its first bit inverted.
	fillKeysSQL = `WITH log AS (
    SELECT uuid, 1 + n %% 3 AS run, (row_number() OVER (PARTITION BY n %% 3 ORDER BY uuid) - 1) / 124 AS page
    FROM (SELECT uuid, row_number() OVER () AS n FROM badged.%[2]s) AS log
), pages AS (
    INSERT INTO badged.dedup_pages_p%02[1]d (run, first, entries)
    SELECT run, (('x' || left(encode(uuid_send((array_agg(uuid ORDER BY uuid))[1]), 'hex'), 16))::bit(64) # (1::bit(64) << 63))::bigint,
        '\x01'::bytea || string_agg(uuid_send(uuid), NULL ORDER BY uuid)
    FROM log GROUP BY run, page
)
INSERT INTO badged.dedup_runs (partition_id, run, generation, entries, state)
SELECT %[1]d, run, run, count(*), 'live' FROM log GROUP BY run`

	// Runs that badged has not written again with filters.
	unfilteredSQL = `SELECT count(*) FROM badged.dedup_runs AS r
WHERE state <> 'live' OR entries <> (SELECT coalesce(sum(entries), 0) FROM badged.dedup_filters AS f WHERE (f.partition_id, f.run) = (r.partition_id, r.run))`

	// Mark the inserted rows as folded.
	fillPositionSQL = `UPDATE badged.%[1]s_offsets SET (last_processed_transaction_id, offset_acked) =
       (SELECT transaction_id, "offset" FROM badged.%[1]s ORDER BY transaction_id DESC, "offset" DESC LIMIT 1)`
)

func (g *grownDatabase) fill(ctx context.Context, cfg stream.Config, logRows int) error {
	if _, err := g.pool.Exec(ctx, fillUsersSQL, cfg.Users, cfg.Conversations); err != nil {
		return fmt.Errorf("users: %w", err)
	}
	if _, err := g.pool.Exec(ctx, fillConversationsSQL, cfg.Conversations); err != nil {
		return fmt.Errorf("conversations: %w", err)
	}
	log, err := events.Open(ctx, g.pool)
	if err != nil {
		return err
	}
	each := logRows / log.Partitions()
	if each > 0 {
		if _, err := g.pool.Exec(ctx, fillGenerationsSQL); err != nil {
			return fmt.Errorf("generations: %w", err)
		}
	}
	for p := range log.Partitions() {
		if each == 0 {
			break
		}
		for _, sql := range []string{
			fmt.Sprintf(fillLogSQL, events.Topic(p), p*each+1, (p+1)*each),
			fmt.Sprintf(fillKeysSQL, p, events.Topic(p)),
			fmt.Sprintf(fillPositionSQL, events.Topic(p)),
		} {
			if _, err := g.pool.Exec(ctx, sql); err != nil {
				return fmt.Errorf("log: %w", err)
			}
		}
	}
	if each > 0 {
		if err := g.buildFilters(ctx); err != nil {
			return err
		}
	}
	_, err = g.pool.Exec(ctx, `VACUUM (ANALYZE)`)
	return err
}

// buildFilters runs badged until every run of keys has filters.
func (g *grownDatabase) buildFilters(ctx context.Context) (err error) {
	server, err := ways.Embed(ctx, g.url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close(context.WithoutCancel(ctx))) }()
	for left := 1; left > 0; {
		if err := g.pool.QueryRow(ctx, unfilteredSQL).Scan(&left); err != nil {
			return fmt.Errorf("filters: %w", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

// run publishes and folds for some time.
func (g *grownDatabase) run(ctx context.Context, r *rig.Rig, duration time.Duration) (_ []measure.Measure, err error) {
	server, err := ways.Embed(ctx, g.url)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Close(context.WithoutCancel(ctx))) }()
	used, err := r.Meter(ctx, func(ctx context.Context) (int, error) { return bulk.Drive(ctx, server, g.stream, duration) })
	if err != nil {
		return nil, err
	}
	return used.All(), ways.CheckTotals(ctx, server, g.stream)
}

// check folds what is left and compares the totals.
func (g *grownDatabase) check(ctx context.Context) (err error) {
	server, err := ways.Embed(ctx, g.url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close(context.WithoutCancel(ctx))) }()
	for behind := true; behind; {
		lags, err := lag.Measure(ctx, g.pool, partitionsOf(server.Log), 1)
		if err != nil {
			return err
		}
		behind = slices.ContainsFunc(lags, func(l lag.Lag) bool { return l.Events > 0 })
	}
	return ways.CheckTotals(ctx, server, g.stream)
}

func partitionsOf(log *events.Log) []int {
	all := make([]int, log.Partitions())
	for p := range all {
		all[p] = p
	}
	return all
}

// Close drops the database.
func (g *grownDatabase) Close(ctx context.Context) error {
	if g.pool != nil {
		g.pool.Close()
	}
	return g.drop(ctx)
}

// backlogged is a database that is folded only during a measurement.
type backlogged struct {
	*grownDatabase
	fold int // events of a round
}

// publish appends events while no projector runs.
func (b backlogged) publish(ctx context.Context, n int) error {
	log, err := events.Open(ctx, b.pool)
	if err != nil {
		return err
	}
	chunk := make([]stream.Event, bulk.Batch)
	for range (n + len(chunk) - 1) / len(chunk) {
		b.stream.Next(chunk)
		batch := make([]events.Event, len(chunk))
		for i := range chunk {
			batch[i] = ways.AsEvent(chunk[i])
		}
		if _, err := log.Append(ctx, batch...); err != nil {
			return err
		}
	}
	return nil
}

// run folds part of the log. It publishes as many events first, which keeps the
// length of the backlog.
func (b backlogged) run(ctx context.Context, r *rig.Rig) (_ []measure.Measure, err error) {
	if err := b.publish(ctx, b.fold); err != nil {
		return nil, err
	}
	if err := r.Exec(ctx, "CHECKPOINT"); err != nil {
		return nil, err
	}
	server, err := ways.Embed(ctx, b.url)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Close(context.WithoutCancel(ctx))) }()
	used, err := r.Meter(ctx, func(ctx context.Context) (int, error) {
		server.Published.Store(int64(b.fold))
		err := server.Settle(ctx)
		return int(server.Folded.Load()), err
	})
	return used.All(), err
}
