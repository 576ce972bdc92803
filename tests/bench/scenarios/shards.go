package scenarios

import (
	"context"
	"fmt"

	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/measure"
	"github.com/badged/badged/tests/bench/rig"
	"github.com/badged/badged/tests/bench/stream"
	"github.com/badged/badged/tests/bench/ways"
)

// processorTime is that of badged and of Postgres together.
const processorTime = "CPU badged and Postgres"

// shards compares one shard with several. All are databases of one server on this
// machine: it shows what spreading costs, not what more machines bring.
func shards() contest.Scenario {
	several := []int{4, 8}
	// Calls of 8,000 give each of eight shards as many events as calls of 1,000 do to one database.
	calls := []ways.Driver{bulk, {Workers: 64, Batch: 1}, {Workers: 4, Batch: 8000}}
	scenario := contest.Scenario{
		Name: "shards",
		Says: "publish and fold together over HTTP, 64 partitions in one database, or in 4 or 8 of the same server",
		Main: processorTime,
		Open: func(_ context.Context, r *rig.Rig, s contest.Scale) (*contest.Contest, error) {
			cfg := stream.Config{
				Users: s.Pick(100_000, 1000), Conversations: 20,
				Reads: 0.1, Repeats: 0.01, Skew: 0.8, Seed: 1,
			}
			var sides []contest.Side
			partitions := s.Pick(64, 8) // making their tables takes long
			for _, d := range calls {
				sides = append(sides, spread(r, spreadSide(1, d), r.Binary, 1, partitions, d, cfg, s))
				for _, n := range several {
					sides = append(sides, spread(r, spreadSide(n, d), r.Binary, n, partitions, d, cfg, s))
					if s.Baseline != "" {
						sides = append(sides, spread(r, spreadSide(n, d)+OfBaseline, s.Baseline, n, partitions, d, cfg, s))
					}
				}
			}
			return contest.Of(sides...)
		},
	}
	for _, d := range calls {
		for _, n := range several {
			scenario.Aims = append(scenario.Aims, contest.Aim{Measure: processorTime, Of: spreadSide(n, d), Over: spreadSide(1, d), AtMost: 1.15})
		}
	}
	return scenario
}

// spreadSide is the name of the side with that many shards and calls of this size.
func spreadSide(shards int, d ways.Driver) string {
	if shards == 1 {
		return fmt.Sprintf("1 shard, calls of %d", d.Batch)
	}
	return fmt.Sprintf("%d shards, calls of %d", shards, d.Batch)
}

// spread is a side with that many shards.
func spread(r *rig.Rig, name, binary string, shards, partitions int, d ways.Driver, cfg stream.Config, s contest.Scale) contest.Side {
	counting := ways.Counting(r, name, fmt.Sprintf("the binary, NDJSON, %d databases; ", shards)+cfg.String(), func(ctx context.Context) (ways.Way, error) {
		defer func(present string) { r.Binary = present }(r.Binary)
		r.Binary = binary
		return remoteOn(ctx, r, shards, partitions, d.Workers)
	}, d, cfg, s.Duration)
	run := counting.Run
	counting.Run = func(ctx context.Context) ([]measure.Measure, error) {
		measures, err := run(ctx)
		sum := measure.Of(processorTime, "µs/event", 0)
		for _, m := range measures {
			if m.Name == "CPU badged" || m.Name == "CPU Postgres" {
				sum.Value += m.Value
			}
		}
		return append(measures, sum), err
	}
	return counting
}

// remoteOn starts the binary on that many new shards.
func remoteOn(ctx context.Context, r *rig.Rig, shards, partitions, connections int) (*ways.Remote, error) {
	d, err := r.DeployShards(ctx, shards, partitions)
	if err != nil {
		return nil, err
	}
	return &ways.Remote{MeteredAPI: ways.NewMeteredAPI(d.API, connections), Deployment: d}, nil
}
