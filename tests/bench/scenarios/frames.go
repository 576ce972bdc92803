package scenarios

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"golang.org/x/sync/errgroup"

	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/load"
	"github.com/badged/badged/tests/bench/measure"
	"github.com/badged/badged/tests/bench/rig"
)

const (
	framesRate = "rate"
	frameTail  = "latency p99"
)

// frames measures how fast one gateway process delivers.
func frames() contest.Scenario {
	const loop, users, room = "gorilla loop", "badged, own events", "badged, one room"
	return contest.Scenario{
		Name: "frames",
		Says: "frames that one process delivers to connected clients, round after round: each round changes what every client sees. Two rounds are under way while the rate is measured, one while the latency is",
		Main: framesRate,
		Aims: []contest.Aim{
			{Measure: framesRate, Of: users, Over: loop, AtLeast: 0.6},
			{Measure: framesRate, Of: room, Over: loop, AtLeast: 0.6},
			{Measure: frameTail, Of: users, AtMost: 100},
			{Measure: frameTail, Of: room, AtMost: 100},
		},
		Open: func(ctx context.Context, r *rig.Rig, s contest.Scale) (*contest.Contest, error) {
			c := crowd{n: s.Pick(5000, 50), duration: s.Duration}
			if err := (idleClients{n: c.n}).check(); err != nil {
				return nil, err
			}
			program := filepath.Join(r.Dir, "frames")
			if err := rig.BuildProgram(ctx, "tests/bench/frames", program); err != nil {
				return nil, err
			}
			says := fmt.Sprintf("%d clients; ", c.n)
			run := func(way string) func(context.Context) ([]measure.Measure, error) {
				return func(ctx context.Context) ([]measure.Measure, error) {
					return c.run(ctx, exec.CommandContext(ctx, program, way)) //nolint:gosec // the program that we have built
				}
			}
			return contest.Of(
				contest.Side{Name: loop, Says: says + "one goroutine writes the same frame to each connection of gorilla/websocket", Run: run("loop")},
				contest.Side{Name: users, Says: says + "the gateway gets an update for each user in every round", Run: run("users")},
				contest.Side{Name: room, Says: says + "the gateway gets one update of a room, whose members all clients are, in every round", Run: run("room")},
			)
		},
	}
}

// crowd is many clients that only count frames.
type crowd struct {
	n        int
	duration time.Duration
}

// run measures a server, which is the program frames.
func (c crowd) run(ctx context.Context, cmd *exec.Cmd) (_ []measure.Measure, err error) {
	s, err := rig.StartServer(cmd)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	w := &watchers{began: map[int64]time.Time{}, waiting: map[int64]int{}, moved: make(chan struct{}, 1)}
	conns := make([]*websocket.Conn, c.n)
	var reading errgroup.Group
	defer func() {
		w.stop()
		for _, conn := range conns {
			if conn != nil {
				_ = conn.Close() // it fails only if it is closed
			}
		}
		err = errors.Join(err, reading.Wait())
	}()
	connecting, connectCtx := errgroup.WithContext(ctx)
	connecting.SetLimit(load.ConnectAtOnce)
	for i := range conns {
		connecting.Go(func() (err error) {
			conns[i], err = watch(connectCtx, s.URL, i)
			return err
		})
	}
	if err := connecting.Wait(); err != nil {
		return nil, err
	}
	for _, conn := range conns {
		reading.Go(func() error { return w.read(conn) })
	}

	pid := s.Cmd.Process.Pid
	if _, err := w.rounds(ctx, s.URL, c.n, 1, c.duration/10); err != nil { // warm up
		return nil, err
	}
	// Two rounds keep both the server and the clients busy. Then the latency is that
	// of two rounds at the rate, however fast the server is.
	w.frames = 0
	before, began := rig.ReadProcesses()[pid].Used, time.Now()
	rounds, err := w.rounds(ctx, s.URL, c.n, 2, c.duration)
	if err != nil {
		return nil, err
	}
	took, used := time.Since(began), rig.ReadProcesses()[pid].Used-before
	frames := float64(w.frames)
	w.latencies = nil
	if _, err := w.rounds(ctx, s.URL, c.n, 1, c.duration/2); err != nil {
		return nil, err
	}
	slices.Sort(w.latencies)
	return []measure.Measure{
		measure.Of(framesRate, "frames/s", frames/took.Seconds()),
		measure.Of("latency p50", "ms", measure.Percentile(w.latencies, 50)),
		measure.Of(frameTail, "ms", measure.Percentile(w.latencies, 99)),
		measure.Of("rounds", "rounds/s", float64(rounds)/took.Seconds()),
		measure.Of("processor time of the server", "µs/frame", float64(used.Microseconds())/frames),
	}, nil
}

// watch connects client i and takes the snapshot.
func watch(ctx context.Context, url string, i int) (*websocket.Conn, error) {
	dialer := websocket.Dialer{
		Subprotocols: []string{"badge.v1"}, HandshakeTimeout: time.Minute, ReadBufferSize: 1024,
		NetDialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(i%32+1))}}).DialContext, //nolint:gosec // at most 32
	}
	conn, res, err := dialer.DialContext(ctx, strings.Replace(url, "http", "ws", 1)+"/v1/ws", http.Header{"Authorization": {"Bearer user-" + strconv.Itoa(i)}})
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	_ = res.Body.Close()
	if err = conn.WriteMessage(websocket.TextMessage, []byte(`{"t":"hello"}`)); err == nil {
		_, _, err = conn.ReadMessage()
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("await the snapshot: %w", err)
	}
	return conn, nil
}

// watchers count the frames of all clients.
type watchers struct {
	mu    sync.Mutex
	done  bool
	began map[int64]time.Time
	// waiting is how many clients have yet to get a round or a later one.
	waiting   map[int64]int
	latencies []float64
	frames    int
	last      int64 // the round that began last
	// moved holds a token after a round has ended.
	moved chan struct{}
}

func (w *watchers) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = true
}

// read counts the frames of a client until its connection is closed.
func (w *watchers) read(conn *websocket.Conn) error {
	seen := int64(0)
	for {
		_, b, err := conn.ReadMessage()
		now := time.Now()
		w.mu.Lock()
		if err != nil {
			defer w.mu.Unlock()
			if w.done {
				return nil
			}
			return fmt.Errorf("a client lost its connection: %w", err)
		}
		round, err := roundOf(b)
		if err != nil {
			w.mu.Unlock()
			return err
		}
		w.frames++
		for ; seen < round; seen++ {
			w.latencies = append(w.latencies, measure.Milliseconds(now.Sub(w.began[seen+1])))
			if w.waiting[seen+1]--; w.waiting[seen+1] == 0 {
				select {
				case w.moved <- struct{}{}:
				default:
				}
			}
		}
		w.mu.Unlock()
	}
}

// roundOf returns the version in a frame of changes, which is the round.
func roundOf(frame []byte) (int64, error) {
	if _, rest, ok := bytes.Cut(frame, []byte(`"version":`)); ok && bytes.HasPrefix(frame, []byte(`{"t":"changes"`)) {
		end := bytes.IndexAny(rest, ",}")
		return strconv.ParseInt(string(rest[:max(0, end)]), 10, 64)
	}
	return 0, fmt.Errorf("unexpected frame %s: %w", frame, measure.ErrWrong)
}

// rounds begins rounds for some time, so many at once, and returns when every client
// has the last.
func (w *watchers) rounds(ctx context.Context, url string, clients, atOnce int, duration time.Duration) (rounds int, err error) {
	end := time.Now().Add(duration)
	for {
		w.mu.Lock()
		under := 0
		for round := w.last; round > 0 && w.waiting[round] > 0; round-- {
			under++
		}
		more := time.Now().Before(end)
		if under == 0 && !more {
			w.mu.Unlock()
			return rounds, nil
		}
		begin := under < atOnce && more
		if begin {
			w.last++
			w.began[w.last], w.waiting[w.last] = time.Now(), clients
			rounds++
		}
		w.mu.Unlock()
		if begin {
			if err := beginRound(ctx, url); err != nil {
				return rounds, err
			}
			continue
		}
		select {
		case <-w.moved:
		case <-ctx.Done():
			return rounds, ctx.Err()
		case <-time.After(load.Patience):
			return rounds, fmt.Errorf("a round has not reached every client within %s: %w", load.Patience, measure.ErrWrong)
		}
	}
}

func beginRound(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/round", http.NoBody)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("begin a round: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("begin a round: %s", res.Status)
	}
	return nil
}
