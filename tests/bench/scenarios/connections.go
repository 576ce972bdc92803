package scenarios

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/load"
	"github.com/badged/badged/tests/bench/measure"
	"github.com/badged/badged/tests/bench/rig"
)

const memoryPerConnection = "memory per connection"

// connections measures the cost of idle clients, which most clients are at any
// moment.
func connections() contest.Scenario {
	const ours, withRedis = "badged", "badged, Redis"
	return contest.Scenario{
		Name: "connections",
		Says: "memory of one server process for each WebSocket client that is connected, has its snapshot and is idle",
		Main: memoryPerConnection,
		Aims: []contest.Aim{
			{Measure: memoryPerConnection, Of: ours, AtMost: 12},
			{Measure: memoryPerConnection, Of: withRedis, AtMost: 12},
		},
		Open: func(_ context.Context, r *rig.Rig, s contest.Scale) (*contest.Contest, error) {
			c := idleClients{n: s.Pick(15_000, 100), idle: s.Duration}
			side := func(name string, deploy rig.Deploy) contest.Side {
				return contest.Side{Name: name, Says: fmt.Sprintf("%d clients, each a user of its own, idle for %s; the gateway's process of %s", c.n, c.idle, deploy),
					Run: func(ctx context.Context) ([]measure.Measure, error) { return c.round(ctx, r, deploy) }}
			}
			return contest.Of(side(ours, rig.Deploy{}), side(withRedis, rig.Deploy{Apart: true}))
		},
	}
}

// idleClients connects clients that then only answer pings. Each client is an open file of this process
// and of the gateway.
type idleClients struct {
	n    int
	idle time.Duration
}

// round measures the gateway, and fails if goroutines of closed connections remain.
func (c idleClients) round(ctx context.Context, r *rig.Rig, deploy rig.Deploy) (_ []measure.Measure, err error) {
	d, err := r.Deploy(ctx, deploy)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Stop(ctx)) }()
	a := load.NewAPI(d.Gateway, 1)
	defer a.Close()
	before, err := a.Counters(ctx, "go_goroutines")
	if err != nil {
		return nil, err
	}
	var during []float64 // goroutines while all are connected and idle
	measures, err := c.measure(ctx, d, func() (err error) {
		during, err = a.Counters(ctx, "go_goroutines")
		return err
	})
	if err != nil {
		return nil, err
	}
	for { // wait until the last goroutines have ended
		now, err := a.Counters(ctx, "go_goroutines", "badged_gateway_connections")
		if err != nil {
			return nil, err
		}
		// Allow for the goroutines of connections to Postgres.
		left := now[0] - before[0]
		if now[1] == 0 && left < 50+float64(c.n)/100 {
			return append(measures, measure.Of("goroutines per connection", "goroutines", (during[0]-before[0])/float64(c.n))), nil
		}
		if err := wait.For(ctx, 50*time.Millisecond); err != nil {
			return nil, fmt.Errorf("%v connections and %v goroutines are left of %d that have ended: %w", now[1], left, c.n, err)
		}
	}
}

// measure connects all clients, measures the memory of the gateway, calls idle, and
// disconnects the clients.
func (c idleClients) measure(ctx context.Context, d *rig.Deployment, idle func() error) ([]measure.Measure, error) {
	from := sources()
	connect := func(ctx context.Context, i int, token string) (*load.Client, error) {
		return load.ConnectNew(ctx, d.Gateway, token, from[i%len(from)])
	}
	warm, err := load.ConnectEach(ctx, 1, connect) // the first connection has one-time costs
	load.CloseAll(warm)
	if err != nil {
		return nil, err
	}
	pid := d.Front.Cmd.Process.Pid
	before := rig.ResidentMemory(pid)

	var reading sync.WaitGroup
	defer reading.Wait()
	began := time.Now()
	clients, err := load.ConnectEach(ctx, c.n, connect)
	defer load.CloseAll(clients)
	if err != nil {
		return nil, err
	}
	took := time.Since(began)
	lost, gone := make(chan error, 1), make(chan struct{})
	for _, client := range clients {
		reading.Go(func() {
			var err error
			for err == nil { // reading answers pings
				_, _, err = client.Conn.Read(ctx)
			}
			select {
			case <-gone:
			case lost <- err:
			default:
			}
		})
	}
	connected := rig.ResidentMemory(pid)
	over := time.NewTimer(c.idle)
	defer over.Stop()
	select {
	case err := <-lost:
		return nil, fmt.Errorf("an idle client lost its connection: %w", err)
	case <-over.C:
	}
	after := rig.ResidentMemory(pid)
	if err := idle(); err != nil {
		return nil, err
	}
	close(gone)
	perConnection := func(bytes int64) float64 { return float64(bytes-before) / 1024 / float64(c.n) }
	return []measure.Measure{
		measure.Of(memoryPerConnection, "KiB", perConnection(after)),
		measure.Of(memoryPerConnection+", just connected", "KiB", perConnection(connected)),
		measure.Of("memory without", "MiB", float64(before)/(1<<20)),
		measure.Of("connecting", "connections/s", float64(c.n)/took.Seconds()),
	}, nil
}

// sources returns clients with different local addresses. One address has too few ports for
// all connections: ports of recent connections are not free, and the kernel is slow to
// find the last free ones.
func sources() (all []*http.Client) {
	for i := range 32 {
		dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(i+1))}}
		all = append(all, &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext}})
	}
	return all
}
