package scenarios

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/sync/errgroup"

	"github.com/badged/badged/internal/auth"
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
		Open: func(ctx context.Context, r *rig.Rig, s contest.Scale) (*contest.Contest, error) {
			c := idleClients{n: s.Pick(15_000, 100), idle: s.Duration}
			if err := c.check(); err != nil {
				return nil, err
			}
			echo := filepath.Join(r.Dir, "echo")
			if err := rig.BuildProgram(ctx, "tests/bench/echo", echo); err != nil {
				return nil, err
			}
			says := fmt.Sprintf("%d clients, each a user of its own, idle for %s; ", c.n, c.idle)
			run := func(t rig.Topology) func(context.Context) ([]measure.Measure, error) {
				return func(ctx context.Context) ([]measure.Measure, error) { return c.ofProduct(ctx, r, t) }
			}
			return contest.Of(
				contest.Side{Name: ours, Says: says + rig.OneProcess.String(), Run: run(rig.OneProcess)},
				contest.Side{Name: withRedis, Says: says + "the gateway's process of " + rig.ThreeProcesses.String(), Run: run(rig.ThreeProcesses)},
				contest.Side{Name: "gorilla echo", Says: "as many connections to the handler of gorilla/websocket's example, which neither pings nor knows users", Run: func(ctx context.Context) ([]measure.Measure, error) {
					return c.ofEcho(ctx, echo)
				}},
			)
		},
	}
}

// idleClients connects clients that then do nothing but answer pings.
type idleClients struct {
	n    int
	idle time.Duration
}

// check fails if one process cannot open that many connections.
func (c idleClients) check() error {
	const others = 200
	most, err := rig.OpenFilesLimit()
	if err != nil {
		return err
	}
	if most < uint64(c.n+others) { //nolint:gosec // positive
		return fmt.Errorf("%d connections need as many open files, and the limit is %d: raise it (ulimit -n %d)", c.n, most, c.n+others)
	}
	return nil
}

// ofProduct measures the gateway and fails if closed connections leave anything
// behind.
func (c idleClients) ofProduct(ctx context.Context, r *rig.Rig, t rig.Topology) (_ []measure.Measure, err error) {
	d, err := r.Deploy(ctx, t)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Stop(ctx)) }()
	tokens, err := auth.NewTokens(auth.TokenConfig{Keys: []string{rig.JWTKeys}})
	if err != nil {
		return nil, err
	}
	a := load.NewAPI(d.Gateway, 1)
	defer a.Close()
	goroutines, err := a.Counter(ctx, "go_goroutines")
	if err != nil {
		return nil, err
	}
	var during float64 // goroutines while all are connected and idle
	measures, err := c.measure(ctx, d.Front, func() (err error) {
		during, err = a.Counter(ctx, "go_goroutines")
		return err
	}, func(ctx context.Context, i int, over *http.Client) (*websocket.Conn, error) {
		token, err := tokens.Sign(load.UserOf(i), time.Hour, time.Now())
		if err != nil {
			return nil, err
		}
		client, err := load.Connect(ctx, d.Gateway, token, over)
		if err != nil {
			return nil, err
		}
		return client.Conn, nil
	})
	if err != nil {
		return nil, err
	}
	for { // wait for the last ones to end
		open, err := a.Counter(ctx, "badged_gateway_connections")
		if err != nil {
			return nil, err
		}
		left, err := a.Counter(ctx, "go_goroutines")
		if err != nil {
			return nil, err
		}
		// Allow for the goroutines of connections to Postgres.
		if left -= goroutines; open == 0 && left < 50+float64(c.n)/100 {
			return append(
				measures,
				measure.Of("goroutines per connection", "goroutines", (during-goroutines)/float64(c.n)),
				measure.Of("goroutines left", "goroutines", left),
			), nil
		}
		if err := pause(ctx, lookInterval); err != nil {
			return nil, fmt.Errorf("%v connections and %v goroutines are left of %d that have ended: %w", open, left, c.n, err)
		}
	}
}

// lookInterval is the polling interval of slow conditions.
const lookInterval = 50 * time.Millisecond

// pause waits for d, or until ctx is done.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c idleClients) ofEcho(ctx context.Context, program string) (_ []measure.Measure, err error) {
	s, err := rig.StartServer(exec.CommandContext(ctx, program))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	return c.measure(ctx, s, func() error { return nil }, func(ctx context.Context, _ int, over *http.Client) (*websocket.Conn, error) {
		conn, err := load.DialWebSocket(ctx, s.URL, &websocket.DialOptions{HTTPClient: over})
		if err != nil {
			return nil, err
		}
		if err = conn.Write(ctx, websocket.MessageText, []byte("hello")); err == nil {
			_, _, err = conn.Read(ctx)
		}
		if err != nil {
			_ = conn.CloseNow() // it fails only if it is closed
			return nil, fmt.Errorf("exchange a message: %w", err)
		}
		return conn, nil
	})
}

// measure connects all clients, measures the memory of s, calls idle, and
// disconnects the clients.
func (c idleClients) measure(
	ctx context.Context, s *rig.Server, idle func() error, connect func(ctx context.Context, i int, over *http.Client) (*websocket.Conn, error),
) ([]measure.Measure, error) {
	warm, err := connect(ctx, 0, http.DefaultClient) // the first connection has one-time costs
	if err != nil {
		return nil, err
	}
	_ = warm.CloseNow()
	before := rig.ResidentMemory(s.Cmd.Process.Pid)

	conns := make([]*websocket.Conn, c.n)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer func() {
		for _, conn := range conns {
			if conn != nil {
				_ = conn.CloseNow() // as above
			}
		}
	}()
	began := time.Now()
	sources := newSources()
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(load.ConnectAtOnce)
	for i := range conns {
		group.Go(func() (err error) {
			conns[i], err = connect(groupCtx, i, sources.of(i))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	took := time.Since(began)
	lost, gone := make(chan error, 1), make(chan struct{})
	for _, conn := range conns {
		reading.Go(func() {
			err := stay(ctx, conn)
			select {
			case <-gone:
			case lost <- err:
			default:
			}
		})
	}
	connected := rig.ResidentMemory(s.Cmd.Process.Pid)
	over := time.NewTimer(c.idle)
	defer over.Stop()
	select {
	case err := <-lost:
		return nil, fmt.Errorf("an idle client lost its connection: %w", err)
	case <-over.C:
	}
	after := rig.ResidentMemory(s.Cmd.Process.Pid)
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

// stay reads, and so answers pings, until the connection ends.
func stay(ctx context.Context, conn *websocket.Conn) error {
	for {
		if _, _, err := conn.Read(ctx); err != nil {
			return err
		}
	}
}

// sources are local addresses to connect from. One address has too few ports for
// all clients: ports of recent connections are not free, and the kernel is slow to
// find the last free ones.
type sources []*http.Client

func newSources() sources {
	const enough = 32
	var all sources
	for i := range enough {
		dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(i+1))}}
		all = append(all, &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext}})
	}
	return all
}

func (s sources) of(i int) *http.Client { return s[i%len(s)] }
