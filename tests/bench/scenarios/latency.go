package scenarios

import (
	"context"
	"errors"
	"time"

	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/load"
	"github.com/badged/badged/tests/bench/measure"
	"github.com/badged/badged/tests/bench/rig"
)

// latency measures the time from a message's scheduled publication until its
// recipient's client has the new badge. The loop is open: the schedule is fixed
// beforehand and does not depend on earlier messages. A stall delays every message
// that is due meanwhile, and all of them count, which avoids coordinated omission.
func latency() contest.Scenario {
	const ours = "badged"
	return contest.Scenario{
		Name: "latency",
		Says: "from publishing one event over HTTP until the WebSocket client has the new badge",
		Main: load.LatencyMedian,
		Aims: []contest.Aim{
			{Measure: load.LatencyMedian, Of: ours, AtMost: 5},
			{Measure: load.LatencyTail, Of: ours, AtMost: 20},
		},
		Open: func(_ context.Context, r *rig.Rig, s contest.Scale) (*contest.Contest, error) {
			l := load.Load{
				Clients: s.Pick(1000, 20), Conversations: 10, Connections: 32,
				Rate: float64(s.Pick(1000, 100)), WarmUp: min(5*time.Second, s.Duration/4), Measured: s.Duration,
			}
			run := func(t rig.Topology) func(context.Context) ([]measure.Measure, error) {
				return func(ctx context.Context) ([]measure.Measure, error) { return latencyRound(ctx, r, t, l) }
			}
			return contest.Of(
				contest.Side{Name: ours, Says: l.String() + "; " + rig.OneProcess.String(), Run: run(rig.OneProcess)},
				contest.Side{Name: "badged, three processes", Says: "the same; " + rig.ThreeProcesses.String(), Run: run(rig.ThreeProcesses)},
				contest.Side{Name: "two syncs and loopback", Says: "a TCP round trip and twice 8 KiB and " + rig.SyncCall + ", one after the other", Run: func(ctx context.Context) ([]measure.Measure, error) {
					return floorRound(ctx, r.Dir, s.Pick(2000, 100))
				}},
			)
		},
	}
}

func latencyRound(ctx context.Context, r *rig.Rig, t rig.Topology, l load.Load) (_ []measure.Measure, err error) {
	messages, err := l.Schedule()
	if err != nil {
		return nil, err
	}
	d, err := r.Deploy(ctx, t)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Stop(ctx)) }()
	clients, err := load.ConnectAll(ctx, d.Gateway, l.Clients)
	defer load.CloseAll(clients)
	if err != nil {
		return nil, err
	}
	a := load.NewAPI(d.API, l.Connections)
	defer a.Close()

	var o load.Observation
	used, err := r.Meter(ctx, func(ctx context.Context) (int, error) {
		o, err = load.Observe(ctx, a.Deliver, clients, messages)
		return len(messages), err
	})
	if err != nil {
		return nil, err
	}
	g := load.NewAPI(d.Gateway, 1)
	defer g.Close()
	repairs, err := g.Counter(ctx, "badged_gateway_reconciliation_repairs_total")
	if err != nil {
		return nil, err
	}
	measures := append(o.Measures(l.WarmUp), measure.Of("repaired", "updates", repairs))
	return append(measures, used.Resources...), errors.Join(o.Check(), load.CheckClients(ctx, a, clients, messages))
}
