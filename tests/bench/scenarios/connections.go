package scenarios

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/load"
	"github.com/badged/badged/tests/bench/rig"
)

const memoryPerConnection = "memory per connection"

// connections measures idle clients, because most clients are idle at any moment.
func connections(r *rig.Rig, s contest.Scale) contest.Scenario {
	const ours, withRedis = "badged", "badged, Redis"
	n := s.Pick(15_000, 100) // each client is an open file of this process and of the gateway
	side := func(name string, deploy rig.Deploy) contest.Side {
		return contest.Side{
			Name: name, Says: fmt.Sprintf("%d clients, each a user of its own, idle for %s; the gateway's process of %s", n, s.Duration, deploy),
			Run: func(run *contest.Run) []contest.Measure {
				return idleClients(run, r.Deploy(run, deploy).Gateway, n, s.Duration)
			},
		}
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

// idleClients connects n clients that then only answer pings, and measures the memory of the gateway.
func idleClients(run *contest.Run, gateway *rig.Server, n int, idle time.Duration) []contest.Measure {
	ctx, a, pid := run.Context(), load.NewAPI(run, gateway.URL, 1), gateway.Cmd.Process.Pid
	goroutines := func() float64 { return contest.Must(a.Counters(ctx, "go_goroutines"))[0] }
	started := goroutines()
	run.Cleanup(func(ctx context.Context) error { return awaitEnd(ctx, a, started, n) })
	from := sources()
	connect := func(ctx context.Context, i int, token string) (*load.Client, error) {
		return load.ConnectNew(ctx, gateway.URL, token, from[i%len(from)])
	}
	contest.Check(contest.Do(ctx, run.Name, func(warm *contest.Run) { load.ConnectAll(warm, 1, connect) })) // the first connection has one-time costs
	before, began := rig.ResidentMemory(pid), time.Now()
	clients := load.ConnectAll(run, n, connect)
	took := time.Since(began)
	lost := make(chan error, n)
	for _, client := range clients {
		go func() {
			for { // reading answers pings
				if _, _, err := client.Conn.Read(ctx); err != nil {
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
	case <-time.After(idle):
	}
	after := rig.ResidentMemory(pid)
	perConnection := func(bytes int64) float64 { return float64(bytes-before) / 1024 / float64(n) }
	return []contest.Measure{
		contest.Of(memoryPerConnection, "KiB", perConnection(after)),
		contest.Of(memoryPerConnection+", just connected", "KiB", perConnection(connected)),
		contest.Of("memory without", "MiB", float64(before)/(1<<20)),
		contest.Of("connecting", "connections/s", float64(n)/took.Seconds()),
		contest.Of("goroutines per connection", "goroutines", (goroutines()-started)/float64(n)),
	}
}

// awaitEnd returns once the goroutines of the closed connections have ended.
func awaitEnd(ctx context.Context, a *load.API, before float64, n int) error {
	for deadline := time.Now().Add(time.Minute); ; {
		now, err := a.Counters(ctx, "go_goroutines", "badged_gateway_connections")
		if err != nil {
			return err
		}
		// Allow for the goroutines of connections to Postgres.
		left := now[0] - before
		if now[1] == 0 && left < 50+float64(n)/100 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%v connections and %v goroutines are left of %d that have ended: %w", now[1], left, n, contest.ErrWrong)
		}
		time.Sleep(50 * time.Millisecond)
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
