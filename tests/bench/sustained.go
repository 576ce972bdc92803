package main

import (
	"context"
	"errors"

	"github.com/badged/badged/internal/devtest/privateredis"
	"github.com/badged/badged/tests/bench/rival"
	"github.com/badged/badged/tests/bench/stream"
)

// bulk publishes in batches, as a chat backend does in bulk.
var bulk = driver{workers: 4, batch: 1000}

// sustained compares publishing and folding together with the usual ways to count.
func sustained() scenario {
	const ours, lua, pipelined, stock = "badged", "Redis Lua", "Redis Lua, pipelined", "watermill-sql"
	const devices = "badged, devices of others"
	return scenario{
		name: "sustained",
		says: "publish and fold together, until all that was published is folded",
		main: "rate",
		aims: []aim{
			{Measure: "rate", Of: ours, Over: lua, AtLeast: 2},
			{Measure: "rate", Of: ours, Over: pipelined, AtLeast: 1},
			{Measure: "rate", Of: ours, Over: stock, AtLeast: 30},
			{Measure: storedMeasure, Of: ours, AtMost: 45},
			{Measure: "cost", Of: devices, Over: ours, AtMost: 1.03},
		},
		open: func(_ context.Context, r *rig, s scale) (*contest, error) {
			cfg := stream.Config{
				Users: s.pick(100_000, 1000), Conversations: 20,
				Reads: 0.1, Repeats: 0.01, Skew: 0.8, Seed: 1,
			}
			return contestOf(
				r.counting(ours, "the server in this process, events.Log.Append; "+cfg.String(), r.ours, bulk, cfg, s.duration),
				r.counting(devices, "the same; the only devices are of users without events", r.withDevices, bulk, cfg, s.duration),
				r.counting("badged, HTTP", "the binary, NDJSON", func(ctx context.Context) (way, error) {
					return r.remote(ctx, bulk.workers)
				}, bulk, cfg, s.duration),
				r.counting(lua, "one EVALSHA: dedup, counters, read position; no persistence of a write before its answer",
					r.redis(func(ctx context.Context, url string) (way, error) { return rival.NewLua(ctx, url) }),
					driver{rival.Connections, 1}, cfg, s.duration),
				r.counting(pipelined, "the same script",
					r.redis(func(ctx context.Context, url string) (way, error) { return rival.NewLua(ctx, url) }),
					driver{rival.Connections, 100}, cfg, s.duration),
				r.counting(stock, "stock publisher and subscribers, a handler per message, in the transaction that read it",
					r.rows(func(ctx context.Context, url string) (way, error) { return rival.NewWatermill(ctx, url, cfg.Users) }),
					bulk, cfg, s.duration),
			)
		},
	}
}

// singleRate compares publishing one event a request, as fast as all connections
// go, with one call of a script for each event.
func singleRate() scenario {
	const ours, lua = "badged, HTTP", "Redis Lua"
	return scenario{
		name: "single-rate",
		says: "publish and fold single events as fast as 64 connections go",
		main: "rate",
		aims: []aim{{Measure: "rate", Of: ours, Over: lua, AtLeast: 0.35}},
		open: func(_ context.Context, r *rig, s scale) (*contest, error) {
			cfg := stream.Config{Users: s.pick(10_000, 1000), Conversations: 20, Reads: 0.1, Repeats: 0.01, Skew: 0.8, Seed: 1}
			one := driver{rival.Connections, 1}
			sides := []side{
				r.counting(ours, "the binary, a request each", func(ctx context.Context) (way, error) { return r.remote(ctx, one.workers) }, one, cfg, s.duration),
				r.counting(lua, "one EVALSHA a call", r.redis(func(ctx context.Context, url string) (way, error) { return rival.NewLua(ctx, url) }), one, cfg, s.duration),
			}
			if s.baseline != "" {
				sides = append(sides, r.counting(ours+ofBaseline, "another binary", func(ctx context.Context) (way, error) {
					defer func(present string) { r.binary = present }(r.binary)
					r.binary = s.baseline
					return r.remote(ctx, one.workers)
				}, one, cfg, s.duration))
			}
			return contestOf(sides...)
		},
	}
}

// owned is a way that also owns its server or database.
type owned struct {
	way
	release func(context.Context) error
}

// Close ends the way and releases its server or database.
func (o owned) Close(ctx context.Context) error {
	return errors.Join(o.way.Close(ctx), o.release(ctx))
}

// ours opens the server in this process on a new database.
func (r *rig) ours(ctx context.Context) (way, error) {
	url, drop, err := r.database(ctx)
	if err != nil {
		return nil, err
	}
	e, err := embed(ctx, url)
	if err != nil {
		return nil, errors.Join(err, drop(ctx))
	}
	return owned{e, drop}, nil
}

// withDevices opens the server in this process on a new database in which every
// partition has a device of a user without events.
func (r *rig) withDevices(ctx context.Context) (way, error) {
	w, err := r.ours(ctx)
	if err != nil {
		return nil, err
	}
	if err := w.(owned).way.(*embedded).registerDevices(ctx); err != nil {
		return nil, errors.Join(err, w.Close(ctx))
	}
	return w, nil
}

// redis opens ways on a new Redis with default settings.
func (r *rig) redis(open func(ctx context.Context, url string) (way, error)) func(context.Context) (way, error) {
	return func(ctx context.Context) (way, error) {
		server, err := privateredis.Start(ctx, privateredis.Config{Args: redisAsShipped()})
		if err != nil {
			return nil, err
		}
		w, err := open(ctx, server.URL())
		if err != nil {
			server.Stop()
			return nil, err
		}
		return owned{w, func(context.Context) error { server.Stop(); return nil }}, nil
	}
}

// rows opens ways on a new database.
func (r *rig) rows(open func(ctx context.Context, url string) (way, error)) func(context.Context) (way, error) {
	return func(ctx context.Context) (way, error) {
		url, drop, err := r.database(ctx)
		if err != nil {
			return nil, err
		}
		w, err := open(ctx, url)
		if err != nil {
			return nil, errors.Join(err, drop(ctx))
		}
		return owned{w, drop}, nil
	}
}
