package main

import (
	"context"

	"github.com/badged/badged/tests/bench/rival"
	"github.com/badged/badged/tests/bench/stream"
)

// hotUsers sends every event to ten users, so that locks are contended.
func hotUsers() scenario {
	const ours, lock, watch, rows = "badged", "Redis SETNX lock", "Redis WATCH/MULTI", "Postgres row locks"
	return scenario{
		name: "hot-users",
		says: "ten users get everything",
		main: "rate",
		aims: []aim{
			{Measure: "rate", Of: ours, Over: lock, AtLeast: 10},
			{Measure: "rate", Of: ours, Over: watch, AtLeast: 10},
			{Measure: "rate", Of: ours, Over: rows, AtLeast: 10},
		},
		open: func(_ context.Context, r *rig, s scale) (*contest, error) {
			cfg := stream.Config{Users: 10, Conversations: 20, Reads: 0.1, Repeats: 0.01, Skew: 0, Seed: 2}
			each := driver{rival.Connections, 1}
			return contestOf(
				r.counting(ours, "the server in this process, events.Log.Append; "+cfg.String(), r.ours, bulk, cfg, s.duration),
				r.counting(lock, "SET NX with a token, retries after 0.5 ms on average, unlock by script",
					r.redis(func(_ context.Context, url string) (way, error) { return rival.NewLock(url) }), each, cfg, s.duration),
				r.counting(watch, "retries at once",
					r.redis(func(_ context.Context, url string) (way, error) { return rival.NewWatch(url) }), each, cfg, s.duration),
				r.counting(rows, "SELECT FOR UPDATE, dedup and both updates, two round trips and one commit an event",
					r.rows(func(ctx context.Context, url string) (way, error) { return rival.NewRows(ctx, url, cfg.Users) }),
					driver{rival.RowConnections, 1}, cfg, s.duration),
			)
		},
	}
}
