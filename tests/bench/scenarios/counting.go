package scenarios

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/partition/rebuild"
	"github.com/badged/badged/projector"
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

func paths(r *rig.Rig, s contest.Scale) contest.Scenario {
	const flat, nested, few, many = "1 part", "3 parts", "10 paths", "10,000 paths"
	in := func(format string, paths int) func(int) string {
		return func(conversation int) string { return fmt.Sprintf(format, conversation%paths) }
	}
	// Before the measured messages each conversation gets one.
	side := func(name, binary string, users, conversations, messages int, category func(int) string) contest.Side {
		c := counting{
			rig: r, stream: stream.Config{Users: users, Conversations: conversations, InTurn: true},
			warmUp: users * conversations, events: messages, category: category,
		}
		side := c.remote(name, bulk, rig.Deploy{Binary: binary, Partitions: defaultPartitions})
		side.Says += fmt.Sprintf("; %d events in categories such as %q", messages, category(3))
		return side
	}
	usual := func(name, binary string, category func(int) string) contest.Side {
		return side(name, binary, s.Pick(5000, 50), 20, s.Pick(200_000, 2000), category)
	}
	large := func(name string, category func(int) string) contest.Side {
		return side(name, "", 10, s.Pick(10_000, 200), s.Pick(100_000, 2000), category)
	}
	return contest.Scenario{
		Name: "paths",
		Says: "messages published in batches of 1,000 over HTTP and folded: with categories of one part and of three, and to users with few paths and with many",
		Main: rig.ProcessorTime,
		Aims: []contest.Aim{
			{Measure: rig.ProcessorTime, Of: flat, Over: flat + OfBaseline, AtMost: 1.02},
			{Measure: rig.ProcessorTime, Of: nested, Over: flat, AtMost: 1.15},
			{Measure: rig.ProcessorTime, Of: many, Over: few, AtMost: 1.25},
		},
		Sides: append(ofBuilds(s, flat, func(name, binary string) contest.Side { return usual(name, binary, in("kind-%d", 4)) }),
			usual(nested, "", in("acme/team/channel-%d", 4)),
			usual("20 categories of 1 part", "", in("channel-%d", 20)),
			usual("20 categories of 3 parts", "", in("acme/team/channel-%d", 20)),
			large(few, in("server/channel-%d", 9)),
			large(many, func(c int) string { return fmt.Sprintf("server-%d/channel-%d", c%200, c) }),
			wholeCategory(r, s.Pick(5000, 100), in("acme/channel-%d", 100))),
	}
}

// wholeCategory measures how long events for all conversations of a category take, from the
// request until they are folded.
func wholeCategory(r *rig.Rig, conversations int, category func(int) string) contest.Side {
	return contest.Side{Name: "5,000 conversations", Says: fmt.Sprintf("one user with %d conversations", conversations), Run: func(run *contest.Run) (measures []contest.Measure) {
		ctx, user := run.Context(), []string{stream.UserID(0)}
		w := newRemote(run, r.Deploy(run, rig.Deploy{}).API.URL, bulk.workers, category)
		contest.Must(bulk.drive(ctx, w, stream.New(stream.Config{Users: 1, Conversations: conversations, InTurn: true}), bulk.upTo(conversations)))
		for _, typ := range []events.Type{events.CategoryLevelSet, events.UserSeenAll, events.UserReadAll, events.UserLeftAll} {
			e := event(string(typ), typ, events.Data{UserIDs: user, Category: "acme"})
			if typ == events.CategoryLevelSet {
				e.Data.Level = events.LevelMentions
			}
			began := time.Now()
			contest.Check(w.API.Settle(ctx, user, e))
			measures = append(measures, contest.Of(string(typ), "ms", contest.Milliseconds(time.Since(began))))
		}
		return measures
	}}
}

// rebuilding corrupts a user of each partition before it rebuilds, so that all tables are
// swapped.
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
	return b.rig.Meter(run, func() int { return contest.Must(bulk.drive(run.Context(), server, b.stream, bulk.upTo(b.events))) })
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
	measures := b.rig.Meter(run, func() int {
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
	return append(measures, contest.Of("projector held up", "ms at most", held))
}
