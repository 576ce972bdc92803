package scenarios

import (
	"context"

	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/rig"
	"github.com/badged/badged/tests/bench/rival"
	"github.com/badged/badged/tests/bench/stream"
	"github.com/badged/badged/tests/bench/ways"
)

// bulk publishes in batches, as a chat backend does in bulk.
var bulk = ways.Driver{Workers: 4, Batch: 1000}

// sustained compares publishing and folding together with the usual ways to count.
func sustained() contest.Scenario {
	const ours, lua, pipelined, stock = "badged", "Redis Lua", "Redis Lua, pipelined", "watermill-sql"
	const devices = "badged, devices of others"
	return contest.Scenario{
		Name: "sustained",
		Says: "publish and fold together, until all that was published is folded",
		Main: "rate",
		Aims: []contest.Aim{
			{Measure: "rate", Of: ours, Over: lua, AtLeast: 2},
			{Measure: "rate", Of: ours, Over: pipelined, AtLeast: 1},
			{Measure: "rate", Of: ours, Over: stock, AtLeast: 30},
			{Measure: ways.StoredMeasure, Of: ours, AtMost: 45},
			{Measure: "cost", Of: devices, Over: ours, AtMost: 1.03},
		},
		Open: func(_ context.Context, r *rig.Rig, s contest.Scale) (*contest.Contest, error) {
			cfg := stream.Config{
				Users: s.Pick(100_000, 1000), Conversations: 20,
				Reads: 0.1, Repeats: 0.01, Skew: 0.8, Seed: 1,
			}
			return contest.Of(
				ways.Counting(r, ours, "the server in this process, events.Log.Append; "+cfg.String(), ways.OpenInProcess(r), bulk, cfg, s.Duration),
				ways.Counting(r, devices, "the same; the only devices are of users without events", ways.OpenInProcessWithDevices(r), bulk, cfg, s.Duration),
				ways.Counting(r, "badged, HTTP", "the binary, NDJSON", func(ctx context.Context) (ways.Way, error) {
					return ways.NewRemote(ctx, r, bulk.Workers)
				}, bulk, cfg, s.Duration),
				ways.Counting(r, lua, "one EVALSHA: dedup, counters, read position; no persistence of a write before its answer",
					ways.OpenOnRedis(func(ctx context.Context, url string) (ways.Way, error) { return rival.NewLua(ctx, url) }),
					ways.Driver{Workers: rival.Connections, Batch: 1}, cfg, s.Duration),
				ways.Counting(r, pipelined, "the same script",
					ways.OpenOnRedis(func(ctx context.Context, url string) (ways.Way, error) { return rival.NewLua(ctx, url) }),
					ways.Driver{Workers: rival.Connections, Batch: 100}, cfg, s.Duration),
				ways.Counting(r, stock, "stock publisher and subscribers, a handler per message, in the transaction that read it",
					ways.OpenOnPostgres(r, func(ctx context.Context, url string) (ways.Way, error) {
						return rival.NewWatermill(ctx, url, cfg.Users)
					}),
					bulk, cfg, s.Duration),
			)
		},
	}
}

// singleRate compares publishing one event a request, as fast as all connections
// go, with one call of a script for each event.
func singleRate() contest.Scenario {
	const ours, lua = "badged, HTTP", "Redis Lua"
	return contest.Scenario{
		Name: "single-rate",
		Says: "publish and fold single events as fast as 64 connections go",
		Main: "rate",
		Aims: []contest.Aim{{Measure: "rate", Of: ours, Over: lua, AtLeast: 0.35}},
		Open: func(_ context.Context, r *rig.Rig, s contest.Scale) (*contest.Contest, error) {
			cfg := stream.Config{Users: s.Pick(10_000, 1000), Conversations: 20, Reads: 0.1, Repeats: 0.01, Skew: 0.8, Seed: 1}
			one := ways.Driver{Workers: rival.Connections, Batch: 1}
			sides := []contest.Side{
				overHTTP(r, ours, r.Binary, one, cfg, s),
				ways.Counting(r, lua, "one EVALSHA a call", ways.OpenOnRedis(func(ctx context.Context, url string) (ways.Way, error) { return rival.NewLua(ctx, url) }), one, cfg, s.Duration),
			}
			if s.Baseline != "" {
				sides = append(sides, overHTTP(r, ours+OfBaseline, s.Baseline, one, cfg, s))
			}
			return contest.Of(sides...)
		},
	}
}
