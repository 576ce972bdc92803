package scenarios

import (
	"context"
	"errors"
	"fmt"

	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/rig"
	"github.com/badged/badged/tests/bench/stream"
	"github.com/badged/badged/tests/bench/ways"
)

// bulk publishes in batches, as a chat backend does in bulk.
var bulk = ways.Driver{Workers: 4, Batch: 1000}

// counting makes sides that count the same heavy-tailed events.
func counting(r *rig.Rig, s contest.Scale, users int) ways.Counting {
	return ways.Counting{Rig: r, Stream: traffic(s.Pick(users, 1000), 1), Duration: s.Duration}
}

func traffic(users int, seed uint64) stream.Config {
	return stream.Config{Users: users, Conversations: 20, Reads: 0.1, Repeats: 0.01, Skew: 0.8, Seed: seed}
}

// sustained compares publishing and folding together with the usual ways to count.
func sustained() contest.Scenario {
	const ours, lua, pipelined = "badged", "Redis Lua", "Redis Lua, pipelined"
	const devices = "badged, devices of others"
	return contest.Scenario{
		Name: "sustained",
		Says: "publish and fold together, until all that was published is folded",
		Main: "rate",
		Aims: []contest.Aim{
			{Measure: "rate", Of: ours, Over: lua, AtLeast: 2},
			{Measure: "rate", Of: ours, Over: pipelined, AtLeast: 1},
			{Measure: ways.StoredMeasure, Of: ours, AtMost: 45},
			{Measure: "cost", Of: devices, Over: ours, AtMost: 1.03},
		},
		Open: func(_ context.Context, r *rig.Rig, s contest.Scale) (*contest.Contest, error) {
			c := counting(r, s, 100_000)
			return contest.Of(
				c.Side(ours, "the server in this process, events.Log.Append", bulk, func(ctx context.Context) (ways.Way, error) { return ways.NewEmbedded(ctx, r) }),
				c.Side(devices, "the same; the only devices are of users without events", bulk, func(ctx context.Context) (ways.Way, error) {
					e, err := ways.NewEmbedded(ctx, r)
					if err != nil {
						return nil, err
					}
					if err := e.RegisterDevices(ctx); err != nil {
						return nil, errors.Join(err, e.Close(ctx))
					}
					return e, nil
				}),
				c.Remote("badged, HTTP", bulk, rig.Deploy{}),
				c.Side(lua, "one EVALSHA: dedup, counters, read position; no persistence of a write before its answer", ways.OneAtATime, ways.NewLua),
				c.Side(pipelined, "the same script", ways.Driver{Workers: ways.OneAtATime.Workers, Batch: 100}, ways.NewLua),
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
			c := counting(r, s, 10_000)
			return contest.Of(append(ofBuilds(s, ours, func(name, binary string) contest.Side {
				return c.Remote(name, ways.OneAtATime, rig.Deploy{Binary: binary})
			}), c.Side(lua, "one EVALSHA a call", ways.OneAtATime, ways.NewLua))...)
		},
	}
}

// calls publishes a few events per request, as backends do that collect events for a moment.
func calls() contest.Scenario {
	return contest.Scenario{
		Name: "calls",
		Says: "publish and fold in calls of 10, 50 and 250 events, 4 at a time",
		Main: "rate",
		Open: func(_ context.Context, r *rig.Rig, s contest.Scale) (*contest.Contest, error) {
			var sides []contest.Side
			for _, n := range []int{10, 50, 250} {
				sides = append(sides, ofBuilds(s, fmt.Sprint("calls of ", n), func(name, binary string) contest.Side {
					return counting(r, s, 100_000).Remote(name, ways.Driver{Workers: 4, Batch: n}, rig.Deploy{Binary: binary})
				})...)
			}
			return contest.Of(sides...)
		},
	}
}

// shards compares one database with several databases on the same server. It shows the cost of several
// databases, not the gain of more machines.
func shards() contest.Scenario {
	name := func(databases int, d ways.Driver) string {
		return fmt.Sprintf("%s, calls of %d", shardsOf(databases), d.Batch)
	}
	// Calls of 8,000 give each of eight shards as many events as calls of 1,000 do to one database.
	drivers := []ways.Driver{bulk, ways.OneAtATime, {Workers: 4, Batch: 8000}}
	scenario := contest.Scenario{
		Name: "shards",
		Says: "publish and fold together over HTTP, 64 partitions in one database, or in 4 or 8 of the same server",
		Main: rig.ProcessorTime,
		Open: func(_ context.Context, r *rig.Rig, s contest.Scale) (*contest.Contest, error) {
			c := counting(r, s, 100_000)
			partitions := s.Pick(64, 8) // making their tables takes long
			var sides []contest.Side
			for _, d := range drivers {
				sides = append(sides, c.Remote(name(1, d), d, rig.Deploy{Databases: 1, Partitions: partitions}))
				for _, n := range []int{4, 8} {
					sides = append(sides, ofBuilds(s, name(n, d), func(name, binary string) contest.Side {
						return c.Remote(name, d, rig.Deploy{Binary: binary, Databases: n, Partitions: partitions})
					})...)
				}
			}
			return contest.Of(sides...)
		},
	}
	for _, d := range drivers {
		for _, n := range []int{4, 8} {
			scenario.Aims = append(scenario.Aims, contest.Aim{Measure: rig.ProcessorTime, Of: name(n, d), Over: name(1, d), AtMost: 1.15})
		}
	}
	return scenario
}

func shardsOf(n int) string {
	if n == 1 {
		return "1 shard"
	}
	return fmt.Sprintf("%d shards", n)
}
