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
	"github.com/badged/badged/tests/bench/rig"
	"github.com/badged/badged/tests/bench/stream"
)

// rebuilding compares rebuilding the tables from the log with publishing and
// folding the same events. Every round first corrupts a user of each partition, so
// that all tables are swapped.
func rebuilding(r *rig.Rig, s contest.Scale) contest.Scenario {
	const published, rebuilt = "publish and fold", "rebuild"
	b := &rebuildRounds{rig: r, cfg: traffic(s.Pick(100_000, 100), 6), events: s.Pick(5_000_000, 5000)}
	return contest.Scenario{
		Name: "rebuild",
		Says: "the same events published and folded, and then folded again into new tables",
		Main: "time",
		Aims: []contest.Aim{{Measure: "time", Of: rebuilt, Over: published, AtMost: 0.25}},
		Open: func(run *contest.Run) { b.shared = run },
		Sides: []contest.Side{
			{Name: published, Says: fmt.Sprintf("the server in this process, events.Log.Append; %s; %s events; %s", b.cfg, contest.FormatNumber(float64(b.events)), bulk), Run: b.publish},
			{Name: rebuilt, Says: "projector.Rebuild, with no server", Run: b.rebuild},
		},
	}
}

// rebuildRounds runs rounds in which one side rebuilds the database of the other.
type rebuildRounds struct {
	rig    *rig.Rig
	shared *contest.Run
	cfg    stream.Config
	events int

	url    string
	drop   func(context.Context) error // nil between rounds
	stream *stream.Stream
}

// publish fills a new database.
func (b *rebuildRounds) publish(run *contest.Run) []contest.Measure {
	b.url, b.drop = b.rig.Database(b.shared)
	b.stream = stream.New(b.cfg)
	server := embed(run, b.url)
	return b.rig.Meter(run, func() int {
		var batches atomic.Int64
		return contest.Must(bulk.drive(run.Context(), server, b.stream, func() bool { return int(batches.Add(1)) <= b.events/bulk.batch }))
	}).All()
}

// spoilSQL corrupts one user of each partition.
const spoilSQL = `UPDATE badged.users SET total = total + 1
WHERE user_id IN (SELECT min(user_id) FROM badged.users GROUP BY partition_id)`

// rebuild rebuilds the database and drops it.
func (b *rebuildRounds) rebuild(run *contest.Run) []contest.Measure {
	if b.drop == nil {
		contest.Check(errors.New("there is nothing to rebuild"))
	}
	run.Cleanup(b.drop)
	b.drop = nil
	ctx, cfg := run.Context(), contest.Must(pgxpool.ParseConfig(b.url))
	projector.ConfigurePool(cfg)
	pool := contest.Must(pgxpool.NewWithConfig(ctx, cfg))
	run.Cleanup(func(context.Context) error { pool.Close(); return nil })
	log := contest.Must(events.Open(ctx, pool))
	spoiled := contest.Must(pool.Exec(ctx, spoilSQL)).RowsAffected()
	contest.Must(pool.Exec(ctx, "CHECKPOINT"))
	var different int64
	var held float64
	used := b.rig.Meter(run, func() int {
		contest.Check(rebuild.Run(ctx, rebuild.Config{Pool: pool, Log: log, Rebuilt: func(p rebuild.Result) {
			different += p.DifferentUsers
			held = max(held, contest.Milliseconds(p.Held))
		}}))
		return b.events
	})
	if different != spoiled {
		contest.Check(fmt.Errorf("%d users were wrong, it found %d: %w", spoiled, different, contest.ErrWrong))
	}
	contest.Check(checkTotals(ctx, embed(run, b.url), b.stream))
	return append(used.All(), contest.Of("projector held up", "ms at most", held))
}
