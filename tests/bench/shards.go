package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/badged/badged/tests/bench/stream"
)

// processorTime is that of badged and of Postgres together.
const processorTime = "CPU badged and Postgres"

// shardsScenario compares one shard with eight. All are databases of one server on this
// machine: it shows what spreading costs, not what more machines bring.
func shardsScenario() scenario {
	const partitions, most = 64, 8
	one, eight := "1 shard", fmt.Sprint(most, " shards")
	return scenario{
		name: "shards",
		says: fmt.Sprintf("publish and fold together over HTTP, %d partitions in one database or in %d of the same server", partitions, most),
		main: processorTime,
		aims: []aim{{Measure: processorTime, Of: eight, Over: one, AtMost: 1.15}},
		open: func(_ context.Context, r *rig, s scale) (*contest, error) {
			cfg := stream.Config{
				Users: s.pick(100_000, 1000), Conversations: 20,
				Reads: 0.1, Repeats: 0.01, Skew: 0.8, Seed: 1,
			}
			return contestOf(
				r.spread(one, 1, partitions, cfg, s),
				r.spread(eight, most, partitions, cfg, s),
			)
		},
	}
}

// spread is a side with so many shards.
func (r *rig) spread(name string, shards, partitions int, cfg stream.Config, s scale) side {
	counting := r.counting(name, fmt.Sprintf("the binary, NDJSON, %d databases; ", shards)+cfg.String(), func(ctx context.Context) (way, error) {
		return r.remoteOn(ctx, shards, partitions, bulk.workers)
	}, bulk, cfg, s.duration)
	run := counting.run
	counting.run = func(ctx context.Context) ([]measure, error) {
		measures, err := run(ctx)
		sum := measure{processorTime, "µs/event", 0}
		for _, m := range measures {
			if m.name == "CPU badged" || m.name == "CPU Postgres" {
				sum.value += m.value
			}
		}
		return append(measures, sum), err
	}
	return counting
}

// remoteOn starts the binary on so many new shards.
func (r *rig) remoteOn(ctx context.Context, shards, partitions, connections int) (_ *remote, err error) {
	d := &deployment{}
	var drops []func(context.Context) error
	d.drop = func(ctx context.Context) error {
		var errs []error
		for _, drop := range drops {
			errs = append(errs, drop(ctx))
		}
		return errors.Join(errs...)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.stop(ctx))
		}
	}()
	for i := range shards {
		url, drop, err := r.database(ctx)
		if err != nil {
			return nil, err
		}
		drops = append(drops, drop)
		// As many connections as one database gets, in all.
		d.frontArgs = append(d.frontArgs, fmt.Sprintf("--shard=s%d=%s&pool_max_conns=%d", i, url, max(2, 12/shards)))
	}
	if _, _, err := r.runBinary(ctx, append([]string{"migrate", "up", fmt.Sprint("--partitions=", partitions)}, d.frontArgs...)...); err != nil {
		return nil, err
	}
	server, err := r.serve(ctx, d.frontArgs...)
	if err != nil {
		return nil, err
	}
	d.servers = append(d.servers, server)
	d.api, d.gateway, d.front = server.url, server.url, server
	return &remote{newMeteredAPI(d.api, connections), d}, nil
}
