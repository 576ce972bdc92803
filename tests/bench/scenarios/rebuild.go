package scenarios

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/partition/rebuild"
	"github.com/badged/badged/projector"
	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/measure"
	"github.com/badged/badged/tests/bench/rig"
	"github.com/badged/badged/tests/bench/stream"
	"github.com/badged/badged/tests/bench/ways"
)

// rebuilding compares rebuilding the tables from the log with publishing and
// folding the same events. Every round first corrupts a user of each partition, so
// that all tables are swapped.
func rebuilding() contest.Scenario {
	const published, rebuilt = "publish and fold", "rebuild"
	return contest.Scenario{
		Name: "rebuild",
		Says: "the same events published and folded, and then folded again into new tables",
		Main: "time",
		Aims: []contest.Aim{{Measure: "time", Of: rebuilt, Over: published, AtMost: 0.25}},
		Open: func(_ context.Context, r *rig.Rig, s contest.Scale) (*contest.Contest, error) {
			rounds := &rebuildRounds{rig: r, cfg: traffic(s.Pick(100_000, 100), 6), events: s.Pick(5_000_000, 5000)}
			return &contest.Contest{
				Sides: []contest.Side{
					{Name: published, Says: fmt.Sprintf("the server in this process, events.Log.Append; %s; %s events; %s", rounds.cfg, measure.FormatNumber(float64(rounds.events)), bulk), Run: rounds.publish},
					{Name: rebuilt, Says: "projector.Rebuild, with no server", Run: rounds.rebuild},
				},
				Close: rounds.close,
			}, nil
		},
	}
}

// rebuildRounds runs rounds in which one side rebuilds the database of the other.
type rebuildRounds struct {
	rig    *rig.Rig
	cfg    stream.Config
	events int

	url    string
	stream *stream.Stream
	drop   func(context.Context) error // nil between rounds
}

// publish fills a new database.
func (b *rebuildRounds) publish(ctx context.Context) (_ []measure.Measure, err error) {
	if err := b.close(ctx); err != nil { // the database of a failed round
		return nil, err
	}
	if b.url, b.drop, err = b.rig.Database(ctx); err != nil {
		return nil, err
	}
	b.stream = stream.New(b.cfg)
	server, err := ways.Embed(ctx, b.url)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Close(context.WithoutCancel(ctx))) }()
	used, err := b.rig.Meter(ctx, func(ctx context.Context) (int, error) {
		var batches atomic.Int64
		return bulk.Drive(ctx, server, b.stream, func() bool { return int(batches.Add(1)) <= b.events/bulk.Batch })
	})
	return used.All(), err
}

// spoilSQL corrupts one user of each partition.
const spoilSQL = `UPDATE badged.users SET total = total + 1
WHERE user_id IN (SELECT min(user_id) FROM badged.users GROUP BY partition_id)`

// rebuild rebuilds the database and drops it.
func (b *rebuildRounds) rebuild(ctx context.Context) (_ []measure.Measure, err error) {
	if b.drop == nil {
		return nil, errors.New("there is nothing to rebuild")
	}
	defer func() { err = errors.Join(err, b.close(ctx)) }()
	cfg, err := pgxpool.ParseConfig(b.url)
	if err != nil {
		return nil, err
	}
	projector.ConfigurePool(cfg)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	log, err := events.Open(ctx, pool)
	if err != nil {
		return nil, err
	}
	spoiled, err := pool.Exec(ctx, spoilSQL)
	if err != nil {
		return nil, err
	}
	if err := b.rig.Exec(ctx, "CHECKPOINT"); err != nil {
		return nil, err
	}
	var different int64
	var held float64
	used, err := b.rig.Meter(ctx, func(ctx context.Context) (int, error) {
		return b.events, rebuild.Run(ctx, rebuild.Config{Pool: pool, Log: log, Rebuilt: func(p rebuild.Result) {
			different += p.DifferentUsers
			held = max(held, p.Held.Seconds()*1000)
		}})
	})
	if err != nil {
		return nil, err
	}
	measures := append(used.All(), measure.Of("projector held up", "ms at most", held))
	if different != spoiled.RowsAffected() {
		return measures, fmt.Errorf("%d users were wrong, it found %d: %w", spoiled.RowsAffected(), different, measure.ErrWrong)
	}
	server, err := ways.Embed(ctx, b.url)
	if err != nil {
		return measures, err
	}
	defer func() { err = errors.Join(err, server.Close(context.WithoutCancel(ctx))) }()
	return measures, ways.CheckTotals(ctx, server, b.stream)
}

// close drops the database of a round.
func (b *rebuildRounds) close(ctx context.Context) error {
	if b.drop == nil {
		return nil
	}
	drop := b.drop
	b.drop = nil
	return drop(ctx)
}
