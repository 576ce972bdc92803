package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/badged/badged/internal/auth"
)

// latency measures the time from a message's scheduled publication until its
// recipient's client has the new badge. The loop is open: the schedule is fixed
// beforehand and does not depend on earlier messages. A stall delays every message
// that is due meanwhile, and all of them count, which avoids coordinated omission.
func latency() scenario {
	const ours = "badged"
	return scenario{
		name: "latency",
		says: "from publishing one event over HTTP until the WebSocket client has the new badge",
		main: latencyMedian,
		aims: []aim{
			{Measure: latencyMedian, Of: ours, AtMost: 5},
			{Measure: latencyTail, Of: ours, AtMost: 20},
		},
		open: func(_ context.Context, r *rig, s scale) (*contest, error) {
			l := load{
				clients: s.pick(1000, 20), conversations: 10, connections: 32,
				rate: float64(s.pick(1000, 100)), warmUp: min(5*time.Second, s.duration/4), measured: s.duration,
			}
			run := func(t topology) func(context.Context) ([]measure, error) {
				return func(ctx context.Context) ([]measure, error) { return latencyRound(ctx, r, t, l) }
			}
			return contestOf(
				side{ours, l.String() + "; " + oneProcess.String(), run(oneProcess)},
				side{"badged, three processes", "the same; " + threeProcesses.String(), run(threeProcesses)},
				side{"two syncs and loopback", "a TCP round trip and twice 8 KiB and " + syncCall + ", one after the other", func(ctx context.Context) ([]measure, error) {
					return floorRound(ctx, r.dir, s.pick(2000, 100))
				}},
			)
		},
	}
}

// The measures that compare the sides.
const (
	latencyMedian = "latency p50"
	latencyTail   = "latency p99"
)

func latencyRound(ctx context.Context, r *rig, t topology, l load) (_ []measure, err error) {
	messages, err := l.schedule()
	if err != nil {
		return nil, err
	}
	d, err := r.deploy(ctx, t)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.stop(ctx)) }()
	clients, err := connectAll(ctx, d.gateway, l.clients)
	defer closeAll(clients)
	if err != nil {
		return nil, err
	}
	a := newAPI(d.api, l.connections)
	defer a.close()

	var o observation
	used, err := r.meter(ctx, func(ctx context.Context) (int, error) {
		o, err = observe(ctx, a.deliver, clients, messages)
		return len(messages), err
	})
	if err != nil {
		return nil, err
	}
	g := newAPI(d.gateway, 1)
	defer g.close()
	repairs, err := g.counter(ctx, "badged_gateway_reconciliation_repairs_total")
	if err != nil {
		return nil, err
	}
	measures := append(o.measures(l.warmUp), measure{"repaired", "updates", repairs})
	return append(measures, used.resources...), errors.Join(o.check(), checkClients(ctx, a, clients, messages))
}

// connectAtOnce bounds how many clients connect at the same time.
const connectAtOnce = 16

// connectAll connects the clients of a load to a gateway.
func connectAll(ctx context.Context, gateway string, n int) ([]*client, error) {
	return connectEach(ctx, n, func(ctx context.Context, token string) (*client, error) {
		return connect(ctx, gateway, token, http.DefaultClient)
	})
}

// connectEach connects a client for each user of a load, with a token. If it
// fails, it returns the connected clients with the error.
func connectEach(ctx context.Context, n int, connect func(ctx context.Context, token string) (*client, error)) ([]*client, error) {
	tokens, err := auth.NewTokens(auth.TokenConfig{Keys: []string{jwtKeys}})
	if err != nil {
		return nil, err
	}
	clients := make([]*client, n)
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(connectAtOnce)
	for i := range clients {
		group.Go(func() error {
			token, err := tokens.Sign(userOf(i), time.Hour, time.Now())
			if err != nil {
				return err
			}
			clients[i], err = connect(groupCtx, token)
			return err
		})
	}
	err = group.Wait()
	return slices.DeleteFunc(clients, func(c *client) bool { return c == nil }), err
}

// closeAll closes the connections of clients.
func closeAll(clients []*client) {
	for _, c := range clients {
		_ = c.conn.CloseNow() // an error means that it is already closed
	}
}

// observation is the outcome of a schedule.
type observation struct {
	start time.Time
	// sent are the messages in the order in which they were due.
	sent []message
	// handed is when each was handed to the HTTP client, accepted when the
	// server had taken it; both from the start.
	handed, accepted []time.Duration
	arrivals         []arrival
}

// patience is how long after the last message is accepted an arrival may come;
// later ones count as lost. It is shorter than the gateway's reconciliation, which
// would repair a lost update.
const patience = 10 * time.Second

// observe publishes messages when they are due and records their arrivals. It
// fails if a message cannot be published or a connection breaks.
func observe(ctx context.Context, publish func(context.Context, message) error, clients []*client, messages []message) (observation, error) {
	for _, m := range messages {
		c := clients[m.client]
		c.sent[m.conversation] = append(c.sent[m.conversation], m.due)
	}
	listenCtx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	var listening errgroup.Group
	for _, c := range clients {
		listening.Go(func() error {
			err := c.listen(listenCtx)
			if listenCtx.Err() != nil {
				return nil // what is missing counts as lost
			}
			return err
		})
	}
	o, err := send(ctx, publish, messages)
	if err != nil {
		giveUp()
	}
	timer := time.AfterFunc(patience, giveUp)
	defer timer.Stop()
	err = errors.Join(err, listening.Wait())
	for _, c := range clients {
		o.arrivals = append(o.arrivals, c.arrivals...)
	}
	return o, errors.Join(err, ctx.Err())
}

// send publishes messages when they are due, without waiting for those before.
func send(ctx context.Context, publish func(context.Context, message) error, messages []message) (observation, error) {
	o := observation{
		start: time.Now(), sent: messages,
		handed: make([]time.Duration, len(messages)), accepted: make([]time.Duration, len(messages)),
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var sending sync.WaitGroup
	due := time.NewTimer(0)
	defer due.Stop()
	for i, m := range messages {
		due.Reset(time.Until(o.start.Add(m.due)))
		select {
		case <-due.C:
		case <-ctx.Done():
			sending.Wait()
			return o, context.Cause(ctx)
		}
		o.handed[i] = time.Since(o.start)
		sending.Go(func() {
			if err := publish(ctx, m); err != nil {
				cancel(fmt.Errorf("publish %s/%d: %w", m.conversation, m.seq, err))
				return
			}
			o.accepted[i] = time.Since(o.start)
		})
	}
	sending.Wait()
	return o, context.Cause(ctx)
}

// measures returns the latencies of the messages due after the warm-up.
func (o observation) measures(warmUp time.Duration) []measure {
	var latency, accepted, late []float64
	for _, a := range o.arrivals {
		if a.due >= warmUp {
			latency = append(latency, milliseconds(a.at.Sub(o.start)-a.due))
		}
	}
	for i, m := range o.sent {
		if m.due >= warmUp {
			accepted = append(accepted, milliseconds(o.accepted[i]-m.due))
			late = append(late, milliseconds(o.handed[i]-m.due))
		}
	}
	slices.Sort(latency)
	slices.Sort(accepted)
	slices.Sort(late)
	ms := func(name string, sorted []float64, p float64) measure {
		return measure{name, "ms", percentile(sorted, p)}
	}
	return []measure{
		ms(latencyMedian, latency, 50),
		ms("latency p90", latency, 90),
		ms(latencyTail, latency, 99),
		ms("latency max", latency, 100),
		ms("accepted p50", accepted, 50),
		ms("accepted p99", accepted, 99),
		ms("sent late p99", late, 99),
		{"sent", "events", float64(len(accepted))},
		{"lost", "events", float64(len(o.sent) - len(o.arrivals))},
	}
}

// check reports losses.
func (o observation) check() error {
	if lost := len(o.sent) - len(o.arrivals); lost != 0 {
		return fmt.Errorf("%d of %d messages did not arrive within %s: %w", lost, len(o.sent), patience, errWrong)
	}
	return nil
}

// checkClients compares the final counts of clients and tables with the sent
// messages.
func checkClients(ctx context.Context, a *api, clients []*client, messages []message) error {
	want, held := map[string]int64{}, map[string]int64{}
	for _, m := range messages {
		want[userOf(m.client)]++
	}
	var users []string
	for i, c := range clients {
		users = append(users, userOf(i))
		held[userOf(i)] = c.total
	}
	totals, err := a.totals(ctx, users)
	if err != nil {
		return err
	}
	if err := check(totals, want); err != nil {
		return fmt.Errorf("in the tables: %w", err)
	}
	if err := check(held, want); err != nil {
		return fmt.Errorf("on the clients: %w", err)
	}
	return nil
}
