package scenarios

import (
	"context"
	"fmt"

	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/rig"
	"github.com/badged/badged/tests/bench/stream"
	"github.com/badged/badged/tests/bench/ways"
)

// calls publishes in calls of some events, as backends do that gather them for a moment.
func calls() contest.Scenario {
	return contest.Scenario{
		Name: "calls",
		Says: "publish and fold in calls of 10, 50 and 250 events, 4 at a time",
		Main: "rate",
		Open: func(_ context.Context, r *rig.Rig, s contest.Scale) (*contest.Contest, error) {
			cfg := stream.Config{Users: s.Pick(100_000, 1000), Conversations: 20, Reads: 0.1, Repeats: 0.01, Skew: 0.8, Seed: 1}
			var sides []contest.Side
			for _, d := range []ways.Driver{{Workers: 4, Batch: 10}, {Workers: 4, Batch: 50}, {Workers: 4, Batch: 250}} {
				name := fmt.Sprint("calls of ", d.Batch)
				sides = append(sides, overHTTP(r, name, r.Binary, d, cfg, s))
				if s.Baseline != "" {
					sides = append(sides, overHTTP(r, name+OfBaseline, s.Baseline, d, cfg, s))
				}
			}
			return contest.Of(sides...)
		},
	}
}

// overHTTP is a side that publishes to a binary of badged.
func overHTTP(r *rig.Rig, name, binary string, d ways.Driver, cfg stream.Config, s contest.Scale) contest.Side {
	return ways.Counting(r, name, "the binary over HTTP; "+cfg.String(), func(ctx context.Context) (ways.Way, error) {
		defer func(present string) { r.Binary = present }(r.Binary)
		r.Binary = binary
		return ways.NewRemote(ctx, r, d.Workers)
	}, d, cfg, s.Duration)
}
