package scenarios

import (
	"context"

	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/rig"
	"github.com/badged/badged/tests/bench/rival"
	"github.com/badged/badged/tests/bench/stream"
	"github.com/badged/badged/tests/bench/ways"
)

// hotUsers sends every event to ten users, so that locks are contended.
func hotUsers() contest.Scenario {
	const ours, lock, watch, rows = "badged", "Redis SETNX lock", "Redis WATCH/MULTI", "Postgres row locks"
	return contest.Scenario{
		Name: "hot-users",
		Says: "ten users get everything",
		Main: "rate",
		Aims: []contest.Aim{
			{Measure: "rate", Of: ours, Over: lock, AtLeast: 10},
			{Measure: "rate", Of: ours, Over: watch, AtLeast: 10},
			{Measure: "rate", Of: ours, Over: rows, AtLeast: 10},
		},
		Open: func(_ context.Context, r *rig.Rig, s contest.Scale) (*contest.Contest, error) {
			cfg := stream.Config{Users: 10, Conversations: 20, Reads: 0.1, Repeats: 0.01, Skew: 0, Seed: 2}
			each := ways.Driver{Workers: rival.Connections, Batch: 1}
			return contest.Of(
				ways.Counting(r, ours, "the server in this process, events.Log.Append; "+cfg.String(), ways.OpenInProcess(r), bulk, cfg, s.Duration),
				ways.Counting(r, lock, "SET NX with a token, retries after 0.5 ms on average, unlock by script",
					ways.OpenOnRedis(func(_ context.Context, url string) (ways.Way, error) { return rival.NewLock(url) }), each, cfg, s.Duration),
				ways.Counting(r, watch, "retries at once",
					ways.OpenOnRedis(func(_ context.Context, url string) (ways.Way, error) { return rival.NewWatch(url) }), each, cfg, s.Duration),
				ways.Counting(r, rows, "SELECT FOR UPDATE, dedup and both updates, two round trips and one commit an event",
					ways.OpenOnPostgres(r, func(ctx context.Context, url string) (ways.Way, error) { return rival.NewRows(ctx, url, cfg.Users) }),
					ways.Driver{Workers: rival.RowConnections, Batch: 1}, cfg, s.Duration),
			)
		},
	}
}
