package scenarios

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/load"
	"github.com/badged/badged/tests/bench/rig"
)

const memoryPerConnection = "memory per connection"

// connections measures the cost of idle clients, which most clients are at any
// moment.
func connections(r *rig.Rig, s contest.Scale) contest.Scenario {
	const ours, withRedis = "badged", "badged, Redis"
	c := idleClients{n: s.Pick(15_000, 100), idle: s.Duration}
	side := func(name string, deploy rig.Deploy) contest.Side {
		return contest.Side{Name: name, Says: fmt.Sprintf("%d clients, each a user of its own, idle for %s; the gateway's process of %s", c.n, c.idle, deploy),
			Run: func(run *contest.Run) []contest.Measure { return c.round(run, r.Deploy(run, deploy).Gateway) }}
	}
	return contest.Scenario{
		Name: "connections",
		Says: "memory of one server process for each WebSocket client that is connected, has its snapshot and is idle",
		Main: memoryPerConnection,
		Aims: []contest.Aim{
			{Measure: memoryPerConnection, Of: ours, AtMost: 12},
			{Measure: memoryPerConnection, Of: withRedis, AtMost: 12},
		},
		Sides: []contest.Side{side(ours, rig.Deploy{}), side(withRedis, rig.Deploy{Apart: true})},
	}
}

// idleClients connects clients that then only answer pings. Each client is an open file of this process
// and of the gateway.
type idleClients struct {
	n    int
	idle time.Duration
}

// round measures the gateway, and fails if goroutines of closed connections remain.
func (c idleClients) round(run *contest.Run, gateway *rig.Server) (measures []contest.Measure) {
	ctx, a := run.Context(), load.NewAPI(run, gateway.URL, 1)
	counters := func() (goroutines, connections float64) {
		now := contest.Must(a.Counters(ctx, "go_goroutines", "badged_gateway_connections"))
		return now[0], now[1]
	}
	before, _ := counters()
	contest.Check(contest.Do(ctx, run.Name, func(run *contest.Run) {
		measures = c.measure(run, gateway)
		idle, _ := counters()
		measures = append(measures, contest.Of("goroutines per connection", "goroutines", (idle-before)/float64(c.n)))
	}))
	for { // wait until the last goroutines have ended
		goroutines, connections := counters()
		// Allow for the goroutines of connections to Postgres.
		left := goroutines - before
		if connections == 0 && left < 50+float64(c.n)/100 {
			return measures
		}
		if err := wait.For(ctx, 50*time.Millisecond); err != nil {
			contest.Check(fmt.Errorf("%v connections and %v goroutines are left of %d that have ended: %w", connections, left, c.n, err))
		}
	}
}

// measure connects all clients until the end of the run, and measures the memory of the gateway.
func (c idleClients) measure(run *contest.Run, gateway *rig.Server) []contest.Measure {
	from := sources()
	connect := func(ctx context.Context, i int, token string) (*load.Client, error) {
		return load.ConnectNew(ctx, gateway.URL, token, from[i%len(from)])
	}
	contest.Check(contest.Do(run.Context(), run.Name, func(warm *contest.Run) { load.ConnectAll(warm, 1, connect) })) // the first connection has one-time costs
	pid := gateway.Cmd.Process.Pid
	before := rig.ResidentMemory(pid)
	began := time.Now()
	clients := load.ConnectAll(run, c.n, connect)
	took := time.Since(began)
	lost := make(chan error, c.n)
	for _, client := range clients {
		go func() {
			for { // reading answers pings
				if _, _, err := client.Conn.Read(run.Context()); err != nil {
					lost <- err
					return
				}
			}
		}()
	}
	connected := rig.ResidentMemory(pid)
	select {
	case err := <-lost:
		contest.Check(fmt.Errorf("an idle client lost its connection: %w", err))
	case <-time.After(c.idle):
	}
	after := rig.ResidentMemory(pid)
	perConnection := func(bytes int64) float64 { return float64(bytes-before) / 1024 / float64(c.n) }
	return []contest.Measure{
		contest.Of(memoryPerConnection, "KiB", perConnection(after)),
		contest.Of(memoryPerConnection+", just connected", "KiB", perConnection(connected)),
		contest.Of("memory without", "MiB", float64(before)/(1<<20)),
		contest.Of("connecting", "connections/s", float64(c.n)/took.Seconds()),
	}
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
