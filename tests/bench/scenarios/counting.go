package scenarios

import (
	"fmt"

	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/rig"
	"github.com/badged/badged/tests/bench/stream"
)

// heavyTailed makes sides that count the same heavy-tailed events.
func heavyTailed(r *rig.Rig, s contest.Scale, users int) counting {
	return counting{rig: r, stream: traffic(s.Pick(users, 1000), 1), duration: s.Duration}
}

func traffic(users int, seed uint64) stream.Config {
	return stream.Config{Users: users, Conversations: 20, Reads: 0.1, Repeats: 0.01, Skew: 0.8, Seed: seed}
}

// sustained compares publishing and folding together with the usual ways to count.
func sustained(r *rig.Rig, s contest.Scale) contest.Scenario {
	const ours, lua, pipelined = "badged", "Redis Lua", "Redis Lua, pipelined"
	const devices = "badged, devices of others"
	c := heavyTailed(r, s, 100_000)
	open := func(run *contest.Run) *embedded {
		url, _ := r.Database(run)
		return embed(run, url)
	}
	return contest.Scenario{
		Name: "sustained",
		Says: "publish and fold together, until all that was published is folded",
		Main: "rate",
		Aims: []contest.Aim{
			{Measure: "rate", Of: ours, Over: lua, AtLeast: 2},
			{Measure: "rate", Of: ours, Over: pipelined, AtLeast: 1},
			{Measure: storedMeasure, Of: ours, AtMost: 45},
			{Measure: "cost", Of: devices, Over: ours, AtMost: 1.03},
		},
		Sides: []contest.Side{
			c.side(ours, "the server in this process, events.Log.Append", bulk, func(run *contest.Run) way { return open(run) }),
			c.side(devices, "the same; the only devices are of users without events", bulk, func(run *contest.Run) way {
				e := open(run)
				e.registerDevices(run.Context())
				return e
			}),
			c.remote("badged, HTTP", bulk, rig.Deploy{}),
			c.side(lua, "one EVALSHA: dedup, counters, read position; no persistence of a write before its answer", oneAtATime, newLua),
			c.side(pipelined, "the same script", driver{workers: oneAtATime.workers, batch: 100}, newLua),
		},
	}
}

// singleRate compares publishing one event a request, as fast as all connections
// go, with one call of a script for each event.
func singleRate(r *rig.Rig, s contest.Scale) contest.Scenario {
	const ours, lua = "badged, HTTP", "Redis Lua"
	c := heavyTailed(r, s, 10_000)
	return contest.Scenario{
		Name: "single-rate",
		Says: "publish and fold single events as fast as 64 connections go",
		Main: "rate",
		Aims: []contest.Aim{{Measure: "rate", Of: ours, Over: lua, AtLeast: 0.35}},
		Sides: append(ofBuilds(s, ours, func(name, binary string) contest.Side {
			return c.remote(name, oneAtATime, rig.Deploy{Binary: binary})
		}), c.side(lua, "one EVALSHA a call", oneAtATime, newLua)),
	}
}

// calls publishes a few events per request, as backends do that collect events for a moment.
func calls(r *rig.Rig, s contest.Scale) contest.Scenario {
	var sides []contest.Side
	for _, n := range []int{10, 50, 250} {
		sides = append(sides, ofBuilds(s, fmt.Sprint("calls of ", n), func(name, binary string) contest.Side {
			return heavyTailed(r, s, 100_000).remote(name, driver{workers: 4, batch: n}, rig.Deploy{Binary: binary})
		})...)
	}
	return contest.Scenario{Name: "calls", Says: "publish and fold in calls of 10, 50 and 250 events, 4 at a time", Main: "rate", Sides: sides}
}

// shards compares one database with several databases on the same server. It shows the cost of several
// databases, not the gain of more machines.
func shards(r *rig.Rig, s contest.Scale) contest.Scenario {
	scenario := contest.Scenario{
		Name: "shards",
		Says: "publish and fold together over HTTP, 64 partitions in one database, or in 4 or 8 of the same server",
		Main: rig.ProcessorTime,
	}
	c := heavyTailed(r, s, 100_000)
	// Calls of 8,000 give each of eight shards as many events as calls of 1,000 do to one database.
	for _, d := range []driver{bulk, oneAtATime, {workers: 4, batch: 8000}} {
		name := func(databases int) string { return fmt.Sprintf("%s, calls of %d", shardsOf(databases), d.batch) }
		for _, n := range []int{1, 4, 8} {
			scenario.Sides = append(scenario.Sides, ofBuilds(s, name(n), func(name, binary string) contest.Side {
				return c.remote(name, d, rig.Deploy{Binary: binary, Databases: n, Partitions: s.Pick(64, 8)}) // making their tables takes long
			})...)
			if n > 1 {
				scenario.Aims = append(scenario.Aims, contest.Aim{Measure: rig.ProcessorTime, Of: name(n), Over: name(1), AtMost: 1.15})
			}
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
